# tests/unit on the interpreter, and with the libraries, that the operator's image ships. The checkout is mounted.
ARG OPERATOR_BUILD
FROM ${OPERATOR_BUILD}
ARG PIP_INDEX_URL=https://pypi.org/simple
RUN /uv/bin/uv export --quiet --locked --only-group test --no-emit-project --output-file /uv/tests.txt \
    && /uv/bin/uv pip install --quiet --default-index ${PIP_INDEX_URL} --require-hashes -r /uv/tests.txt
ENV PATH=/opt/lockstep/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
