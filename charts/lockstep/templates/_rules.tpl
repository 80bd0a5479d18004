{{/* The operator's rights, once: manifests/ are made from them as well. A right belongs to the narrowest of the lists
that works. Each says what it is for unless the resource does. Roles that are named -runs are bound where runs may be:
everywhere, unless the installation is for some namespaces. */}}

{{/* In the whole cluster, in a namespaced install too: nodes are shared, and what others run on them counts. */}}
{{- define "lockstep.rules.cluster" -}}
- apiGroups: [lockstep.dev]
  resources: [trainingruns, trainingrunsets, trainingqueues]
  verbs: [list, watch]
- apiGroups: [lockstep.dev]
  resources: [trainingqueues/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Nodes are patched to remember what failed on them.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
# Their values order the queue.
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch]
# Whether a class is there that a run names, and which may have been meant.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list]
# Who a worker is.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- if .Values.web.enabled }}
# What somebody who looks at the web page may see.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{/* In the whole cluster, with kueue.enabled: the Workloads of runs that Kueue admits, and what their reservations refer
to. */}}
{{- define "lockstep.rules.kueue" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads, localqueues, clusterqueues, resourceflavors, topologies, workloadpriorityclasses]
  verbs: [list, watch]
{{- end }}

{{/* In namespaces with runs: all, or those of a namespaced install. */}}
{{- define "lockstep.rules.runs" -}}
# Runs are made for the indices of a set, and deleted ttlAfterFinished after their end, or once they have only asked
# when they would start.
- apiGroups: [lockstep.dev]
  resources: [trainingruns]
  verbs: [get, create, delete]
- apiGroups: [lockstep.dev]
  resources: [trainingrunsets]
  verbs: [get, delete]
- apiGroups: [lockstep.dev]
  resources: [trainingruns/status, trainingrunsets/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, create, delete]
# The worker's program, assignments of large gangs, stacks; and whether one is there that a run names.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
# Whether a claim is there that a run names, and which may have been meant.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list]
# What workers trust, which changes with the CA of the worker API.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lockstep-worker-ca]
  verbs: [update]
# Jobs that copy checkpoints to the archive and back, or remove them. They are ended for what comes before them.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* There as well, with lookUp.secrets: whether a Secret is there that a run names. Only its metadata is read, which no
rule can say. */}}
{{- define "lockstep.rules.look-up-runs" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}

{{/* There as well, with kueue.enabled. */}}
{{- define "lockstep.rules.kueue-runs" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}

{{/* There as well, where podGroups.kind is written: gangs as other schedulers know them. Whatever it says, Disabled
too: a gang keeps the kind of group that it was launched with. */}}
{{- define "lockstep.rules.pod-groups-runs" -}}
- apiGroups: [scheduling.k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, create, delete]
{{- end }}

{{/* There as well, with scaleUp.provisioningRequests: gangs ask an autoscaler for nodes. */}}
{{- define "lockstep.rules.scale-up-runs" -}}
- apiGroups: [autoscaling.x-k8s.io]
  resources: [provisioningrequests]
  verbs: [get, create, delete]
# What the nodes are to be for.
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [get, create, delete]
{{- end }}

{{/* In the namespace "default", where Kubernetes puts the events of nodes. */}}
{{- define "lockstep.rules.nodeEvents" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* In the operator's own namespace. Creation cannot be restricted by name. */}}
{{- define "lockstep.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [lockstep-operator]
  verbs: [get, update, delete]
# Where workers find the leader: the EndpointSlice of a Service without a selector, which goes with it.
- apiGroups: [""]
  resources: [services]
  resourceNames: [lockstep-operator]
  verbs: [get]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  resourceNames: [lockstep-operator-ipv4, lockstep-operator-ipv6]
  verbs: [get, update, delete]
# The worker API's CA and serving certificate.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [lockstep-worker-tls]
  verbs: [get, update]
# Usage of late, for fair share, and the next number of a batch job.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [lockstep-job-ids, lockstep-usage]
  verbs: [get, update]
{{- end }}

{{/* What users read beside their runs. */}}
{{- define "lockstep.rules.look" -}}
# In force only where the role is bound for the whole cluster.
- apiGroups: [lockstep.dev]
  resources: [trainingqueues]
  verbs: [get, list, watch]
# What lockstep's verbs read beside runs; view and edit have it anyway.
- apiGroups: [""]
  resources: [pods, pods/log, configmaps]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, list, watch]
{{- end }}
