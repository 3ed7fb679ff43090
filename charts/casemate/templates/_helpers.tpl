{{/* Labels of the release's objects. */}}
{{- define "casemate.labels" -}}
app.kubernetes.io/name: casemate-allocator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What selects the allocator's Pods. A selector can never be changed. */}}
{{- define "casemate.selector" -}}
app.kubernetes.io/name: casemate-allocator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The image. */}}
{{- define "casemate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else if and .Values.image.tag .Values.image.floating -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- else -}}
{{- fail "image.digest is needed (or image.tag with image.floating: true, and then nobody knows what runs)" -}}
{{- end -}}
{{- end }}

{{/* Name of a signing key's Secret, by its number. */}}
{{- define "casemate.key" -}}
casemate-signing-key-{{ . }}
{{- end }}

{{/* Names of cluster-scoped objects: a cluster may have several allocators. */}}
{{- define "casemate.clusterName" -}}
casemate.{{ .Release.Namespace }}.{{ .Values.serviceAccountName }}
{{- end }}

{{/* The allocator, as the API server calls it. */}}
{{- define "casemate.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.serviceAccountName }}
{{- end }}

{{/*
An admission policy over what the allocator itself asks for, and its binding. A dict: root, name, rules, variables, validations
(both as YAML). Where it cannot be evaluated the request is refused.
*/}}
{{- define "casemate.policy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ printf "%s.%s" (include "casemate.clusterName" .root) .name | quote }}
  labels: {{- include "casemate.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: {{- .rules | nindent 6 }}
  matchConditions:
    - name: allocator
      expression: request.userInfo.username == {{ include "casemate.user" .root | squote }}
  {{- with .variables }}
  variables: {{- . | nindent 4 }}
  {{- end }}
  validations: {{- .validations | nindent 4 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ printf "%s.%s" (include "casemate.clusterName" .root) .name | quote }}
  labels: {{- include "casemate.labels" .root | nindent 4 }}
spec:
  policyName: {{ printf "%s.%s" (include "casemate.clusterName" .root) .name | quote }}
  validationActions: [Deny, Audit]
{{- end }}

{{/* Validations of metadata that every object of a slot has when it is made. */}}
{{- define "casemate.slotMetadata" -}}
- message: "an object of a slot has a slot's name"
  expression: has(object.metadata.name) && object.metadata.name.matches('^w-[a-z2-7]{26}$')
- message: "an object of a slot has a slot's labels and no others"
  expression: >-
    has(object.metadata.labels)
    && object.metadata.labels.all(l, l in ['casemate.dev/slot', 'casemate.dev/profile-uid', 'casemate.dev/session', 'casemate.dev/installation', 'app.kubernetes.io/name', 'app.kubernetes.io/managed-by'])
    && ['casemate.dev/slot', 'casemate.dev/installation', 'app.kubernetes.io/name', 'app.kubernetes.io/managed-by'].all(l, l in object.metadata.labels)
    && object.metadata.labels['casemate.dev/slot'] == object.metadata.name
    && object.metadata.labels['app.kubernetes.io/name'] == 'casemate-worker'
    && object.metadata.labels['app.kubernetes.io/managed-by'] == 'casemate'
- message: "an object of a slot has no annotations but casemate's: others mean something to others"
  expression: "!has(object.metadata.annotations) || object.metadata.annotations.all(a, a.startsWith('casemate.dev/'))"
- message: "an object of a slot has no finalizers but the API server's own"
  expression: "!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, f == 'kubernetes.io/pvc-protection')"
{{- end }}

{{/* Of what belongs to the slot's ServiceAccount. */}}
{{- define "casemate.anchored" -}}
- message: "it belongs to the slot's ServiceAccount and to nobody else"
  expression: >-
    has(object.metadata.ownerReferences) && object.metadata.ownerReferences.size() == 1
    && object.metadata.ownerReferences[0].apiVersion == 'v1'
    && object.metadata.ownerReferences[0].kind == 'ServiceAccount'
    && object.metadata.ownerReferences[0].name == object.metadata.name
    && has(object.metadata.ownerReferences[0].controller) && object.metadata.ownerReferences[0].controller
{{- end }}
