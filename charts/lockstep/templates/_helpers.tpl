{{/* Names do not depend on the release: a second operator in the cluster would give away the same nodes again, and
Helm refuses it this way. */}}
{{- define "lockstep.name" -}}lockstep-operator{{- end }}

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

{{- define "lockstep.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The operator's configuration: what the user says, and what has to agree with the other objects. */}}
{{- define "lockstep.config" -}}
{{- $host := printf "%s.%s.svc" (include "lockstep.name" .) .Release.Namespace }}
{{- $made := dict "namespace" .Release.Namespace "namespaces" .Values.namespaces }}
{{- $defaults := dict "mode" "Active" "workerUrl" (printf "https://%s:8443" $host) }}
{{- $_ := set $defaults "archive" (dict "image" (include "lockstep.image" .)) }}
{{- if .Values.history.claimName }}
{{- $_ := set $defaults "history" (dict "path" "/var/lib/lockstep/history.jsonl") }}
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
