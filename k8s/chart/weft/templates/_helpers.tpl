{{/* The image of all containers but VPP's. */}}
{{- define "weft.image" -}}
{{ .Values.image.name }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The content of agent.yaml. */}}
{{- define "weft.agentConfig" -}}
{{- if and (ne .Values.cni.mode "primary") (not (hasKey .Values.config "ipMasq")) -}}
ipMasq: false
{{ end }}
{{- toYaml .Values.config }}
{{- end }}
