# The operator's image; it also runs the jobs that copy checkpoints to an archive.
#
# Both images have to bring the same Python, 3.11 or newer, at the same path. Where no registry can be reached, one image
# from a Debian root file system serves as both:
#   debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm rootfs
#   tar -C rootfs -c . | docker import - lockstep-base
#   docker build --build-arg BUILD_IMAGE=lockstep-base --build-arg BASE_IMAGE=lockstep-base -t lockstep-operator:0.1.0 .
ARG BUILD_IMAGE=python:3.13-slim
ARG BASE_IMAGE=python:3.13-slim

FROM ${BUILD_IMAGE} AS build
ARG UV_VERSION=0.9.9
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/lockstep
WORKDIR /source
RUN python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir uv==${UV_VERSION}
# Dependencies change less often than the code.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN /uv/bin/uv sync --locked --no-default-groups --extra archive --no-install-project
COPY operator/lockstep operator/lockstep
RUN /uv/bin/uv sync --locked --no-default-groups --extra archive --no-editable

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="lockstep-operator" \
      org.opencontainers.image.description="Runs LLM training on Kubernetes as one gang" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/lockstep /opt/lockstep
# Nothing is written: byte code is there already, and the root file system may be read-only. Libraries ask for the user's
# name and home, and the user has no entry in /etc/passwd.
ENV PATH=/opt/lockstep/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/ USER=lockstep PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number: kubelet cannot tell whether a name is root.
USER 65532:65532
ENTRYPOINT ["lockstep-operator"]
