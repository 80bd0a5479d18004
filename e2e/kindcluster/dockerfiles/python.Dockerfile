# The operator's and the trainers' base where no registry has one: Debian with Python.
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        ca-certificates python3 python3-venv >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
