# The operator's image; it also runs the jobs that copy checkpoints to an archive. `make image` builds it, where no
# registry can be reached from a base that it makes out of Debian's packages.
#
# Both images have to bring the same Python, 3.11 or newer, at the same path. Builds happen in BUILD_IMAGE alone.
ARG BUILD_IMAGE=python:3.13-slim
ARG BASE_IMAGE=python:3.13-slim

FROM ${BUILD_IMAGE} AS build
ARG UV_VERSION=0.9.30
# An index to take packages from instead of PyPI's: the same files, as they are held to the hashes of uv.lock.
ARG PIP_INDEX_URL=https://pypi.org/simple
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NATIVE_TLS=1 UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never \
    VIRTUAL_ENV=/opt/lockstep
WORKDIR /source
RUN python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check uv==${UV_VERSION}
# Dependencies change less often than the code.
COPY pyproject.toml uv.lock ./
RUN /uv/bin/uv venv --quiet ${VIRTUAL_ENV} \
    && list="/uv/bin/uv export --quiet --locked --no-default-groups --extra archive --extra otel" \
    && ${list} --format cyclonedx1.5 --preview-features sbom-export --output-file ${VIRTUAL_ENV}/sbom.cdx.json \
    && ${list} --no-emit-project --output-file /uv/requirements.txt \
    && /uv/bin/uv pip install --quiet --default-index ${PIP_INDEX_URL} --require-hashes -r /uv/requirements.txt
COPY README.md LICENSE ./
COPY operator/lockstep operator/lockstep
RUN /uv/bin/uv pip install --quiet --default-index ${PIP_INDEX_URL} --no-deps .

# What the base brings along is listed as well: in it, as it may have no shell.
FROM ${BASE_IMAGE} AS contents
USER 0:0
ARG VERSION=
WORKDIR /contents
COPY --from=build /opt/lockstep/sbom.cdx.json ./
COPY e2e/kindcluster/image_contents.py ./
RUN ["python3", "-I", "-B", "image_contents.py", "sbom.cdx.json"]

FROM ${BASE_IMAGE}
# Given by whoever builds: `make image` and the release do. The package in it has its own.
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="lockstep-operator" \
      org.opencontainers.image.description="Runs LLM training on Kubernetes as one gang" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/lockstep /opt/lockstep
COPY --from=contents /contents/sbom.cdx.json /opt/lockstep/sbom.cdx.json
# Nothing is written: byte code is there already, and the root file system may be read-only. Libraries ask for the user's
# name and home, and the user has no entry in /etc/passwd.
ENV PATH=/opt/lockstep/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/ USER=lockstep PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number: kubelet cannot tell whether a name is root.
USER 65532:65532
ENTRYPOINT ["lockstep-operator"]
