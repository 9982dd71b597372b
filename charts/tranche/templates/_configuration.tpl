{{- /* tranche.namespace is the namespace of all objects. The admission policies name it, so it cannot be changed. */ -}}
{{- define "tranche.namespace" -}}
{{- if ne .Release.Namespace "tranche-system" -}}
{{- fail "install Tranche into its own namespace: helm install tranche ... --namespace tranche-system --create-namespace" -}}
{{- end -}}
tranche-system
{{- end -}}

{{- /* tranche.configuration is the manager's configuration file. */ -}}
{{- define "tranche.configuration" -}}
{{- $fixed := dict "apiVersion" "config.tranche.dev/v1alpha1" "kind" "Configuration" "managedNamespaceSelector" .Values.namespaceSelector "manageJobSetsWithoutQueueName" .Values.manageJobSetsWithoutQueueName "gang" (dict "provider" .Values.gangProvider) -}}
{{- if eq .Values.mode "Beside" -}}
{{- $_ := set $fixed "mode" "Beside" -}}
{{- if or .Values.visibility.enable (dig "visibility" "enable" false .Values.configuration) -}}
{{- fail "visibility.enable has no effect in mode Beside; remove it: Kueue's manager serves the visibility API" -}}
{{- end -}}
{{- if dig "expectedStart" "enable" false .Values.configuration -}}
{{- fail "configuration.expectedStart.enable has no effect in mode Beside; remove it: the order in which Kueue's manager admits is not simulated" -}}
{{- end -}}
{{- range $key := list "fairSharing" "admissionFairSharing" -}}
{{- if hasKey $.Values.configuration $key -}}
{{- fail (printf "configuration.%s has no effect in mode Beside; set it in the configuration of Kueue's manager" $key) -}}
{{- end -}}
{{- end -}}
{{- if dig "waitForPodsReady" "enable" false .Values.configuration -}}
{{- fail "configuration.waitForPodsReady has no effect in mode Beside; set it in the configuration of Kueue's manager" -}}
{{- end -}}
{{- range $key, $value := .Values.configuration.podGroups -}}
{{- if not (has (toString $value) (get (dict "status" (list "Manage") "afterTimeout" (list "Requeue") "waitingTime" (list "10m" "10m0s")) $key | default list)) -}}
{{- fail (printf "configuration.podGroups.%s has no effect in mode Beside; remove it: the pod integration of Kueue's manager queues pods" $key) -}}
{{- end -}}
{{- end -}}
{{- range $gate, $isOn := .Values.configuration.featureGates -}}
{{- if $isOn -}}
{{- fail (printf "configuration.featureGates.%s has no effect in mode Beside; set it in the configuration of Kueue's manager" $gate) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.kueue.managerUser -}}
{{- fail "kueue.managerUser is empty: in mode Beside, the admission policies have to know the user name of Kueue's manager" -}}
{{- end -}}
{{- end -}}
{{- $values := dict "mode" "mode" "managedNamespaceSelector" "namespaceSelector" "manageJobSetsWithoutQueueName" "manageJobSetsWithoutQueueName" -}}
{{- range $key, $value := $values -}}
{{- if hasKey $.Values.configuration $key -}}
{{- fail (printf "configuration.%s has no effect; set the value %s, which also concerns the admission policies" $key $value) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (.Values.configuration.gang | default dict) "provider" -}}
{{- fail "configuration.gang.provider has no effect; set the value gangProvider, which also concerns the admission policies" -}}
{{- end -}}
{{- if .Values.gangSchedulerName -}}
{{- $_ := set $fixed.gang (lower .Values.gangProvider) (dict "schedulerName" .Values.gangSchedulerName) -}}
{{- end -}}
{{- if not .Values.metrics.secure -}}
{{- $_ := set $fixed "metrics" (dict "secure" false) -}}
{{- else if .Values.metrics.certSecret -}}
{{- $_ := set $fixed "metrics" (dict "certDir" "/etc/tranche-metrics") -}}
{{- end -}}
{{- if .Values.visibility.enable -}}
{{- $served := dict "enable" true -}}
{{- if .Values.visibility.certSecret -}}
{{- $_ := set $served "certDir" "/etc/tranche-visibility" -}}
{{- end -}}
{{- $_ := set $fixed "visibility" $served -}}
{{- end -}}
{{- if .Values.dashboard.enable -}}
{{- $dashboard := dict "enable" true -}}
{{- if .Values.dashboard.certSecret -}}
{{- $_ := set $dashboard "certDir" "/etc/tranche-dashboard" -}}
{{- end -}}
{{- $_ := set $fixed "dashboard" $dashboard -}}
{{- end -}}
{{- toYaml (merge $fixed .Values.configuration) -}}
{{- end -}}

{{- /* tranche.metricsPort is the default port of metrics.bindAddress. */ -}}
{{- define "tranche.metricsPort" -}}
{{- if .Values.metrics.secure }}8443{{ else }}8080{{ end -}}
{{- end -}}
