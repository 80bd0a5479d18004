# PyTorch for CPUs, with gloo and torchrun, as Debian builds it. (The wheel on the package index wants CUDA's libraries,
# several GB, before it can be imported.)
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends python3-numpy python3-torch >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
# Debian's is built without libuv, and torchrun's stores ask for it whatever USE_LIBUV says.
RUN cd /usr/lib/python3/dist-packages/torch/distributed \
    && sed -i 's/multi_tenant=True,$/multi_tenant=True, use_libuv=False,/' elastic/rendezvous/static_tcp_rendezvous.py \
    && sed -i 's/is_master=False,$/is_master=False, use_libuv=False,/' rendezvous.py \
    && grep -q use_libuv=False elastic/rendezvous/static_tcp_rendezvous.py && grep -q use_libuv=False rendezvous.py
# Debian's Python, also where the base image brings another one.
ENV PATH=/usr/bin:/bin USE_LIBUV=0 OMP_NUM_THREADS=1
