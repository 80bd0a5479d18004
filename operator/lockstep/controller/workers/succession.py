"""How a new CA takes the place of the old one without a worker being restarted or turned away. Pure.

| Step | The Secret then has | Workers trust | Served is a certificate by |
|---|---|---|---|
| 0 | the CA | it | it |
| 1 | the CA and its successor | both | the CA |
| 2 | the successor as the CA, and its predecessor | both | the successor |
| 0 | the successor as the CA | it | it |

Between two steps lies ``overlap``: the kubelets' time to bring the ConfigMap to the workers, and the other replicas'
to read the Secret. The times are those of the certificates, so that any leader knows where the last one was.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from lockstep.controller.workers.tls import Material, age, new_authority, time_left, with_new_serving

RENEW_CA_BEFORE = timedelta(days=365)
SETTLED = timedelta(minutes=10)
"""A kubelet takes up a ConfigMap within two minutes."""


def next_step(
    material: Material, hosts: Sequence[str], now: float, *, overlap: timedelta, published_for: timedelta, asked: bool
) -> Material:
    """The material after the step that is due; the same when none is.

    ``published_for`` is how long the bundle of this material has been in every namespace, as far as the leader knows
    by its own doing; negative while it is not. ``asked``: somebody wants another CA now.
    """
    if material.next_ca_cert:
        is_known = published_for >= min(overlap, SETTLED)
        if age(material.next_ca_cert, now) < overlap or not is_known:
            return material
        successor = replace(
            material,
            ca_cert=material.next_ca_cert,
            ca_key=material.next_ca_key,
            next_ca_cert=b"",
            next_ca_key=b"",
            old_ca_cert=material.ca_cert,
        )
        return with_new_serving(successor, hosts, now)
    if material.old_ca_cert:
        return replace(material, old_ca_cert=b"") if age(material.cert, now) >= overlap else material
    if asked or time_left(material.ca_cert, now) < RENEW_CA_BEFORE:
        certificate, key = new_authority(now)
        return replace(material, next_ca_cert=certificate, next_ca_key=key)
    return material
