"""Where the API server is and who we are there: from a kubeconfig, or from the pod's service account."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ssl import SSLContext


@dataclass(frozen=True, slots=True)
class Credentials:
    """One reading of the configuration."""

    server: str  # base URL without a trailing slash
    ssl: ssl.SSLContext | bool
    server_hostname: str | None
    authorization: Callable[[], Awaitable[str | None]]  # the header's value; re-reads rotated tokens
    trust: SSLContext | bool = True
    """The server's certificate is judged as by ``ssl``, and none of ours is shown: for requests in others' names."""


async def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Read ``kubeconfig``, or without one the service account of the pod this runs in.

    Everything the client library understands works: exec plugins, token files, client certificates.
    Raises ``kubernetes.aio.config.ConfigException`` when there is nothing usable.
    """
    # Imported here: it takes a second, which `--help` and the tests of everything else need not spend.
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.config import load_incluster_config, load_kube_config

    configuration = Configuration()
    if kubeconfig is None:
        await asyncio.to_thread(load_incluster_config, configuration)
    else:
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )

    async def authorization() -> str | None:
        header: str | None = await configuration.get_api_key_with_prefix("BearerToken")
        return header

    server = str(configuration.host).rstrip("/")
    is_tls = server.startswith("https:")
    return Credentials(
        server=server,
        ssl=await asyncio.to_thread(_ssl_context, configuration) if is_tls else False,
        server_hostname=configuration.tls_server_name,
        authorization=authorization,
        trust=await asyncio.to_thread(_ssl_context, configuration, shows=False)
        if server.startswith("https:")
        else False,
    )


def _ssl_context(configuration: object, *, shows: bool = True) -> ssl.SSLContext:
    ca_file = getattr(configuration, "ssl_ca_cert", None)
    context = ssl.create_default_context(cafile=ca_file)
    # Python 3.13 refuses CAs without an authority key identifier, which many clusters have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if shows and getattr(configuration, "cert_file", None):
        context.load_cert_chain(configuration.cert_file, configuration.key_file)  # type: ignore[attr-defined]
    if not getattr(configuration, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
