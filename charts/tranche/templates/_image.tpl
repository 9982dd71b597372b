{{- /* tranche.image is the image of the manager: by its tag, else by its digest, else by the version of the chart's application. */ -}}
{{- define "tranche.image" -}}
{{- $image := .Values.image -}}
{{- if and $image.digest (not $image.tag) -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
