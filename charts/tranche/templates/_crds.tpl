{{- /* tranche.crds.release has the objects of config/crd that belong to the release, as KIND/NAME with a space behind each: those that are not
on the cluster, that carry the annotations of the release, that an earlier revision has installed, or all of them if crds.takeOver is true.
What an earlier revision has installed stays in the release even if its annotations were lost: otherwise Helm would delete a CRD with all
of its objects. */ -}}
{{- define "tranche.crds.release" -}}
{{- $installed := splitList " " (dig "data" "names" "" (lookup "v1" "ConfigMap" .Release.Namespace "tranche-crds")) -}}
{{- range $document := splitList "\n---\n" (.Files.Get "files/crds.yaml") -}}
{{- $object := fromYaml $document -}}
{{- $key := printf "%s/%s" $object.kind $object.metadata.name -}}
{{- $existing := lookup $object.apiVersion $object.kind "" $object.metadata.name -}}
{{- $annotations := dig "metadata" "annotations" dict $existing -}}
{{- $own := and (eq (get $annotations "meta.helm.sh/release-name") $.Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") $.Release.Namespace) -}}
{{- if include "tranche.crds.other" (list $ $object) -}}
{{- else if or (not $existing) $own (has $key $installed) $.Values.crds.takeOver -}}
{{ $key }} {{ end -}}
{{- end -}}
{{- end -}}

{{- /* tranche.crds.foreign has the objects of config/crd that are on the cluster already and do not belong to the release. */ -}}
{{- define "tranche.crds.foreign" -}}
{{- $own := splitList " " (include "tranche.crds.release" .) -}}
{{- range $document := splitList "\n---\n" (.Files.Get "files/crds.yaml") -}}
{{- $object := fromYaml $document -}}
{{- $key := printf "%s/%s" $object.kind $object.metadata.name -}}
{{- if not (or (has $key $own) (include "tranche.crds.other" (list $ $object))) -}}
{{ $key }} {{ end -}}
{{- end -}}
{{- end -}}

{{- /* tranche.crds.other is not empty for a CRD of Kueue if Kueue installs them. */ -}}
{{- define "tranche.crds.other" -}}
{{- $values := (first .).Values -}}
{{- if and (or (eq $values.mode "Beside") (not $values.kueue.crds)) (hasSuffix ".kueue.x-k8s.io" (last .).metadata.name) -}}true{{- end -}}
{{- end -}}
