# What runs training that needs nothing but Python, and is not root.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 65532:65532
