# For builds alone: the authorities that this machine trusts, such as that of a company's proxy.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
