package live

import "testing"

func TestWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		denied    []string
		workloads int64
		want      string
	}{
		"all may be read": {nil, maxWorkloads, ""},
		"a right is missing": {
			[]string{"clusterqueues.kueue.x-k8s.io", "jobs.batch"},
			maxWorkloads + 1,
			"this needs the right to list clusterqueues.kueue.x-k8s.io and jobs.batch in the whole cluster, as the ClusterRole tranche-snapshot-reader grants it",
		},
		"all rights in the cluster are missing": {
			[]string{"namespaces", "resourceflavors.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "limitranges"},
			0,
			"this needs the right to list clusterqueues.kueue.x-k8s.io and 3 other kinds in the whole cluster, as the ClusterRole tranche-snapshot-reader grants it",
		},
		"a large cluster": {
			nil, maxWorkloads + 1,
			"the cluster has about 20001 quota Workloads, more than the 20000 that are read at once: run tranche snapshot -o cluster.tar.gz, and then this command " +
				"with --snapshot cluster.tar.gz",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whyNot(c.denied, c.workloads); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
