{{- /* tranche.crds.release has the objects of config/crd that belong to the release, as KIND/NAME with a space behind each: those that are not
on the cluster, that carry the annotations of the release, that an earlier revision has installed, or all of them if crds.takeOver is true.
What an earlier revision has installed stays in the release even if its annotations were lost: otherwise Helm would delete a CRD with all
of its objects. */ -}}
{{- define "tranche.crds.release" -}}
{{- $installed := splitList " " (dig "data" "names" "" (lookup "v1" "ConfigMap" .Release.Namespace "tranche-crds")) -}}
{{- range $document := splitList "\n---\n" (.Files.Get (ternary "files/beside_crds.yaml" "files/crds.yaml" (or (eq .Values.mode "Beside") (not .Values.kueue.crds)))) -}}
{{- $object := fromYaml $document -}}
{{- $key := printf "%s/%s" $object.kind $object.metadata.name -}}
{{- $existing := lookup $object.apiVersion $object.kind "" $object.metadata.name -}}
{{- $annotations := dig "metadata" "annotations" dict $existing -}}
{{- $own := and (eq (get $annotations "meta.helm.sh/release-name") $.Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") $.Release.Namespace) -}}
{{- if or (not $existing) $own (has $key $installed) $.Values.crds.takeOver -}}
{{ $key }} {{ end -}}
{{- end -}}
{{- end -}}

{{- /* tranche.crds.foreign has the objects of config/crd that are on the cluster already and do not belong to the release. */ -}}
{{- define "tranche.crds.foreign" -}}
{{- $own := splitList " " (include "tranche.crds.release" .) -}}
{{- range $document := splitList "\n---\n" (.Files.Get (ternary "files/beside_crds.yaml" "files/crds.yaml" (or (eq .Values.mode "Beside") (not .Values.kueue.crds)))) -}}
{{- $object := fromYaml $document -}}
{{- $key := printf "%s/%s" $object.kind $object.metadata.name -}}
{{- if not (has $key $own) -}}
{{ $key }} {{ end -}}
{{- end -}}
{{- end -}}
