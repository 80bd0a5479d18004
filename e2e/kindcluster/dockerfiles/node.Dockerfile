# A kind node from Debian's packages, kind's own base files and programs built from their Go modules. It follows
# images/base/Dockerfile of kind, which builds the same from a registry's Debian.
#
# bookworm: its systemd runs on cgroup v1 and v2.
ARG DEBIAN
FROM ${DEBIAN} AS root
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        systemd systemd-sysv \
        conntrack iptables nftables iproute2 ethtool socat util-linux mount kmod \
        libseccomp2 runc ca-certificates curl jq procps >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY kind-files/ /
COPY root/ /
RUN chmod 755 /kind /kind/bin /kind/bin/*.sh /usr/local/bin/* /usr/bin/kubelet /usr/bin/kubeadm /usr/bin/kubectl /opt/cni/bin/* \
    && ctr oci spec \
        | jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
        > /etc/containerd/cri-base.json \
    && rm -f /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
        /lib/systemd/system/multi-user.target.wants/* /lib/systemd/system/local-fs.target.wants/* \
        /lib/systemd/system/basic.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
        /lib/systemd/system/sockets.target.wants/*initctl* /etc/systemd/system/*.wants/* \
    && echo ReadKMsg=no >> /etc/systemd/journald.conf \
    && systemctl --quiet enable kubelet.service containerd.service undo-mount-hacks.service \
    && systemctl --quiet mask systemd-binfmt.service \
    && mkdir -p /etc/kubernetes/manifests \
    && : > /etc/machine-id
# Where no process gets CAP_SYS_RESOURCE, no container may be preferred by the kernel's OOM killer.
ARG RESTRICT_OOM_SCORE=false
RUN sed -i "s/restrict_oom_score_adj = false/restrict_oom_score_adj = ${RESTRICT_OOM_SCORE}/" /etc/containerd/config.toml

# Kubernetes' own images, put into containerd's store but not unpacked, as kind does it.
FROM root AS store
COPY images.tar /
RUN containerd >/tmp/log 2>&1 & \
    for second in $(seq 30); do ctr version >/dev/null 2>&1 && break; sleep 1; done; \
    ctr --namespace k8s.io images import --label=io.cri-containerd.pinned=pinned --all-platforms --no-unpack /images.tar \
    && kill $! && wait

FROM root
COPY --from=store /var/lib/containerd /var/lib/containerd
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
