# Kubernetes' pause, whose source is in its module.
ARG DEBIAN
FROM ${DEBIAN} AS build
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends gcc libc6-dev >/dev/null
COPY pause.c /
RUN gcc -Os -static -s -DVERSION=v0 -o /pause /pause.c

FROM scratch
COPY --from=build /pause /pause
USER 65535:65535
ENTRYPOINT ["/pause"]
