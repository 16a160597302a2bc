{{- define "is-cluster" -}}
{{- if eq .Values.upstream "cluster:" }}yes{{ end -}}
{{- end }}

{{- define "replicas" -}}
{{- .Values.replicas | default (ternary 3 2 (eq .Values.upstream "cluster:")) -}}
{{- end }}

{{- define "nodes" -}}
tenured-gateway-nodes.{{ .Release.Namespace }}.svc.{{ .Values.cluster.domain }}
{{- end }}

{{- define "keys" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}

{{- define "pod" -}}
metadata:
  labels: {app: tenured-gateway}
  annotations:
    # A pod with another configuration is another pod.
    checksum/config: {{ include (print $.Template.BasePath "/configmap.yaml") . | sha256sum }}
spec:
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: 20
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- if include "is-cluster" . }}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {app: tenured-gateway}
  {{- else }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {app: tenured-gateway}
  {{- end }}
  containers:
    - name: tenured-gateway
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
      {{- if ne .Values.image.pullPolicy "IfNotPresent" }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- end }}
      {{- if include "is-cluster" . }}
      env:
        - name: POD
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: TENURED_GATEWAY_CLUSTER_ADDRESS
          value: $(POD).{{ include "nodes" . }}:8741
      {{- end }}
      ports:
        - {name: https, containerPort: 8740}
        {{- if include "is-cluster" . }}
        - {name: nodes, containerPort: 8741}
        {{- end }}
      readinessProbe:
        httpGet: {path: /readyz, port: https, scheme: HTTPS}
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /healthz, port: https, scheme: HTTPS}
        periodSeconds: 10
        timeoutSeconds: 6
        failureThreshold: 3
      lifecycle:
        preStop:
          sleep: {seconds: 5}
      securityContext:
        runAsUser: 65532
        runAsGroup: 65532
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/tenured-gateway, readOnly: true}
        {{- if include "has-password" . }}
        - {name: upstream, mountPath: /etc/tenured-gateway-secret, readOnly: true}
        {{- end }}
        - {name: keys, mountPath: /etc/tenured-gateway-keys, readOnly: true}
        - {name: tls, mountPath: /etc/tenured-gateway-tls, readOnly: true}
        {{- if include "is-cluster" . }}
        - {name: nodes, mountPath: /etc/tenured-gateway-nodes, readOnly: true}
        {{- end }}
        - {name: runtime, mountPath: /run/tenured-gateway}
        - {name: state, mountPath: /var/lib/tenured-gateway}
  volumes:
    - name: config
      configMap: {name: tenured-gateway}
    {{- if include "has-password" . }}
    - name: upstream
      secret: {secretName: {{ .Values.upstreamSecret }}, defaultMode: 0440}
    {{- end }}
    - name: keys
      secret: {secretName: {{ .Values.keysSecret }}, defaultMode: 0440}
    - name: tls
      secret: {secretName: {{ .Values.tlsSecret }}, defaultMode: 0440}
    {{- if include "is-cluster" . }}
    - name: nodes
      secret: {secretName: {{ .Values.cluster.tlsSecret }}, defaultMode: 0440}
    {{- end }}
    - name: runtime
      emptyDir: {medium: Memory, sizeLimit: 64Mi}
    {{- if not (include "is-cluster" .) }}
    - name: state
      emptyDir: {sizeLimit: 64Mi}
    {{- end }}
{{- end }}

{{- define "has-password" -}}
{{- if and .Values.upstreamSecret (ne .Values.upstream "cluster:") }}yes{{ end -}}
{{- end }}
