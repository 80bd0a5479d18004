{{/* Names do not depend on the release: a second operator in the cluster would give away the same nodes again, and
Helm refuses it this way. */}}
{{- define "lockstep.name" -}}lockstep-operator{{- end }}

{{/* Refuses it in our words, and where --take-ownership lets Helm pass over names: that takes the other's rights and
leaves its operator running. Whose rights they are, their binding says, be it of a release or of the plain manifests.
What is left of an operator that has gone may be taken. */}}
{{- define "lockstep.onlyOne" -}}
{{- $binding := lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" (include "lockstep.name" .) }}
{{- $release := index (dig "metadata" "annotations" dict $binding) "meta.helm.sh/release-name" }}
{{- range $binding.subjects }}
{{- if and (ne .namespace $.Release.Namespace) (lookup "apps/v1" "Deployment" .namespace (include "lockstep.name" $)) }}
{{- fail (printf "one operator serves a cluster, as two would give away the same nodes, and this one has %s in namespace %s: upgrade that one (`namespaces` there says whose runs it looks after), or suspend its runs, then uninstall it: pods that run would go on to call the operator in %s, and no other hears them" (empty $release | ternary "the plain manifests" (printf "the release %s" $release)) .namespace .namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lockstep.selector" -}}
app.kubernetes.io/name: lockstep
app.kubernetes.io/component: operator
{{- end }}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Mappings as one, each key once: the last that has it says what it is, though it be empty. */}}
{{- define "lockstep.merged" -}}
{{- $all := dict }}
{{- range . }}
{{- range $key, $value := . }}
{{- $_ := set $all $key $value }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{- define "lockstep.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Two operators cannot write one file, and most claims can be mounted on one node only. */}}
{{- define "lockstep.replicas" -}}
{{- if .Values.history.claimName }}1{{ else }}{{ .Values.replicas }}{{ end }}
{{- end }}

{{/* "true": runs may be admitted by Kueue. Where nobody has said whether, its API says it; without a cluster to ask, as
in `helm template`, none is served. */}}
{{- define "lockstep.kueue" -}}
{{- dig "kueue" "enabled" (.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2") .Values.config }}
{{- end }}

{{/* The same of asking autoscalers for nodes by ProvisioningRequests. */}}
{{- define "lockstep.provisioningRequests" -}}
{{- dig "scaleUp" "provisioningRequests" (.Capabilities.APIVersions.Has "autoscaling.x-k8s.io/v1") .Values.config }}
{{- end }}

{{/* The operator's configuration: what the user says, and what has to agree with the other objects. */}}
{{- define "lockstep.config" -}}
{{- $host := printf "%s.%s.svc" (include "lockstep.name" .) .Release.Namespace }}
{{- $made := dict "namespace" .Release.Namespace "namespaces" (.Values.namespaces | default list) }}
{{- $defaults := dict "mode" "Active" "workerUrl" (printf "https://%s:8443" $host) }}
{{- $_ := set $defaults "archive" (dict "image" (include "lockstep.image" .)) }}
{{- $_ := set $defaults "kueue" (dict "enabled" (eq (include "lockstep.kueue" .) "true")) }}
{{- $_ := set $defaults "scaleUp" (dict "provisioningRequests" (eq (include "lockstep.provisioningRequests" .) "true")) }}
{{- if dig "history" "path" "" .Values.config }}
{{- fail "config.history.path: nothing is mounted there; set history.claimName, and the chart says where it is" }}
{{- end }}
{{- $gangs := .Values.config.priorityClass | default "lockstep-gang" }}
{{- if hasPrefix "system-" $gangs }}
{{- fail (printf "config.priorityClass: %s is Kubernetes' own, and preempts; name a class with preemptionPolicy: Never, or leave it out for lockstep-gang" $gangs) }}
{{- end }}
{{- if eq $gangs (dig "scaleUp" "priorityClass" "lockstep-placeholder" .Values.config) }}
{{- fail (printf "config.priorityClass: %s is the class of what only holds a place for a gang (config.scaleUp.priorityClass), and below everything else; name another" $gangs) }}
{{- end }}
{{- if .Values.history.claimName }}
{{- $_ := set $defaults "history" (dict "path" "/var/lib/lockstep/history.jsonl") }}
{{- end }}
{{- if .Values.web.enabled }}
{{- $web := dict "enabled" true "listen" (ternary "::" "127.0.0.1" .Values.web.expose) }}
{{- if .Values.web.expose }}
{{- $_ := set $web "hosts" (prepend .Values.web.hosts (printf "%s-web.%s.svc" (include "lockstep.name" .) .Release.Namespace)) }}
{{- end }}
{{- $_ := set $made "web" $web }}
{{- end }}
{{- toYaml (mergeOverwrite $defaults (deepCopy .Values.config) $made) }}
{{- end }}

{{- define "lockstep.restricted" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{- define "lockstep.user" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
