# A launcher as its wheels have it: a group of tests/launchers. Neither ssh nor sshd, no root, no compiler. DeepSpeed's
# base has Debian's Python with PyTorch.
ARG BUILD_IMAGE
ARG BASE_IMAGE
FROM ${BUILD_IMAGE} AS build
ARG UV_VERSION
ARG GROUP
ARG PIP_INDEX_URL=https://pypi.org/simple
ENV DS_BUILD_OPS=0 UV_LINK_MODE=copy UV_NATIVE_TLS=1 UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never VIRTUAL_ENV=/opt/launchers
WORKDIR /source
RUN PATH=/usr/local/bin:${PATH} python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check uv==${UV_VERSION}
COPY pyproject.toml uv.lock ./
RUN /uv/bin/uv venv --quiet --python python3 --system-site-packages ${VIRTUAL_ENV} \
    && /uv/bin/uv export --quiet --locked --only-group ${GROUP} --no-emit-project --output-file /uv/requirements.txt \
    && /uv/bin/uv pip install --quiet --default-index ${PIP_INDEX_URL} --require-hashes --no-deps -r /uv/requirements.txt

FROM ${BASE_IMAGE}
COPY --from=build /opt/launchers /opt/launchers
ENV PATH=/opt/launchers/bin:/usr/local/bin:/usr/bin:/bin
USER 65532:65532
