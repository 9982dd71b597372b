package sample

// OneQueue is the objects of a cluster as YAML: the LocalQueue main in namespace ml with 4 CPUs, of which the quota Workload runs holds 3 for at most two hours.
// Quota is reserved for what has waited for 10 minutes.
const OneQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: v1
kind: Namespace
metadata: {name: ml, labels: {kubernetes.io/metadata.name: ml}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus, annotations: {tranche.dev/reserve-after: 10m}}
spec:
  queueingStrategy: BestEffortFIFO
  namespaceSelector: {}
  resourceGroups:
  - {coveredResources: [cpu], flavors: [{name: h100, resources: [{name: cpu, nominalQuota: 4}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {namespace: ml, name: main}
spec: {clusterQueue: gpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: ml, name: runs, uid: u1, resourceVersion: "1", creationTimestamp: "2026-01-01T10:00:00Z"}
spec:
  active: true
  queueName: main
  maximumExecutionTimeSeconds: 7200
  podSets: [{name: main, count: 3, template: {spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
status:
  admission: {clusterQueue: gpus, podSetAssignments: [{name: main, count: 3, flavors: {cpu: h100}, resourceUsage: {cpu: 3}}]}
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-01-01T10:00:00Z"}
  - {type: Admitted, status: "True", reason: Admitted, message: "", lastTransitionTime: "2026-01-01T10:00:00Z"}
---
`

// Pending returns a quota Workload for 4 CPUs that waits in the LocalQueue of OneQueue since a time. fields are other lines of its spec, each after
// a line break and two spaces.
func Pending(name, created, fields string) string {
	return `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: ml, name: ` + name + `, uid: ` + name + `, resourceVersion: "1", creationTimestamp: "` + created + `"}
spec:
  active: true
  queueName: main` + fields + `
  podSets: [{name: main, count: 4, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
---
`
}
