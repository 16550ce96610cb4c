{{- define "firn.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Names leave room for the suffixes of services and pods. */}}
{{- define "firn.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "firn.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "firn.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "firn.selectorLabels" -}}
app.kubernetes.io/name: {{ include "firn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "firn.labels" -}}
{{ include "firn.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "firn.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "firn.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A probe of a path: list ROOT PATH */}}
{{- define "firn.probe" -}}
{{- $root := index . 0 -}}
httpGet:
  path: {{ index . 1 }}
  port: http
  scheme: {{ $root.Values.probes.scheme }}
  {{- with $root.Values.probes.httpHeaders }}
  httpHeaders:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
