"""Texts that values are: names, labels, amounts of Kubernetes, as far as a mistake can be seen in advance."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

_BYTE = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_IPV4 = rf"({_BYTE}\.){{3}}{_BYTE}/(3[0-2]|[12]?[0-9])"
_IPV6 = "[0-9a-fA-F]*:[0-9a-fA-F:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_WHEN = ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"]

Name = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
OptionalName = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]
LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
]
Labels = dict[str, LabelValue]
Annotations = dict[str, str]
Cidr = Annotated[str, Field(pattern=f"^({_IPV4}|{_IPV6})$")]
Quantity = (
    Annotated[str, Field(pattern=f"^{_NUMBER}([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$")]
    | Annotated[float, Field(ge=0)]
)
PrometheusDuration = Annotated[
    str,
    Field(
        min_length=2,
        pattern="^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
    ),
]
Peer = Annotated[
    dict[str, Any],
    Field(
        min_length=1,
        json_schema_extra={"propertyNames": {"enum": ["namespaceSelector", "podSelector", "ipBlock"]}},
    ),
]
"""Of a NetworkPolicy."""
Affinity = Annotated[
    dict[str, Annotated[dict[str, Any], Field(json_schema_extra={"propertyNames": {"enum": _WHEN}})]],
    Field(json_schema_extra={"propertyNames": {"enum": ["nodeAffinity", "podAffinity", "podAntiAffinity"]}}),
]
