# What programs the node's network: kube-proxy, and the routes between the nodes' pods.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        conntrack iproute2 iptables kmod nftables >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY kube-proxy routes.py /usr/local/bin/
