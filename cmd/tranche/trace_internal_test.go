package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

const smallTrace = "submit,queue,stages,run\n" +
	"0,default,2*nvidia.com/gpu=8,1h\n" +
	"60,default,prepare(cpu=8)=Succeeded=>train(2*nvidia.com/gpu=8),\"prepare:10m,train:1h\"\n" +
	"60,default,nvidia.com/gpu=64,1h\n"

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	file, jobs, queues := filepath.Join(dir, "trace.csv"), filepath.Join(dir, "jobs.txt"), filepath.Join(dir, "queues.yaml")
	nowhere := filepath.Join(dir, "nowhere")
	write(t, file, smallTrace)
	write(t, jobs, "JobID|Submit|ElapsedRaw|ReqTRES\n1|2026-11-02T08:00:00|60|cpu=4\n2|2026-11-02T08:00:00|0|cpu=4\n")
	write(t, queues, `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu]
    flavors:
    - name: any
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 16}
      - {name: cpu, nominalQuota: 16}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: default, namespace: default}
spec: {clusterQueue: team}
`)
	trace := "simulate --trace " + file
	for line, want := range map[string]struct {
		code int
		text string
	}{
		trace + " -f " + queues + " --policy Staged": {1, `Staged: 1 of 3 jobs never start: default/job-4: ClusterQueue team has not enough quota for it, or does not admit it
3 jobs, submitted over 1m0s. Quota: 16 nvidia.com/gpu.

POLICY  FINISHED  STOPPED  PENDING  LEFT OUT  EVICTIONS  MAKESPAN  HELD, HOURS  OF QUOTA
Staged  2         0        1        0         0          2h0m0s    32.0         100.0 %

Of what is held:
POLICY  IN USE   IDLE   NOT READY  WAITS FOR STAGE  NOT RUNNING
Staged  100.0 %  0.0 %  0.0 %      0.0 %            0.0 %

By nvidia.com/gpu of the largest stage:
SIZE      JOBS  POLICY  WAIT MEAN  P50  P95  P99  MAX  ALL STAGES MEAN  P50  P95    P99    SLOWDOWN MEAN  P50  P95
5 to 16   2     Staged  0s         0s   0s   0s   0s   24m30s           0s   49m0s  49m0s  1.4            1.0  1.7
17 to 64  1     Staged  –          –    –    –    –    –                –    –      –      –              –    –

Staged:
- default/job-4 never starts: ClusterQueue team has not enough quota for it, or does not admit it
`},
		trace + " --quota nvidia.com/gpu=16,cpu=8 -o json": {1, `"policy": "Whole"`},
		trace + " --quota cpu=8 --resource cpu":            {1, "Quota: 8 cpu."},
		trace + " -f " + queues + " --policy Whole,Staged,Staged+StrictFIFO,Staged": {1, `POLICY             IN USE   IDLE   NOT READY  WAITS FOR STAGE  NOT RUNNING
Whole              92.3 %   7.7 %  0.0 %      0.0 %            7.7 %
Staged             100.0 %  0.0 %  0.0 %      0.0 %            0.0 %
Staged+StrictFIFO  100.0 %  0.0 %  0.0 %      0.0 %            0.0 %

`},
		trace + " -f " + filepath.Join(dir) + "/queues.yaml x": {2, "leave one out"},
		"simulate x --policy Whole":                            {2, "--policy is for traces: name one with --trace"},
		"simulate --trace " + nowhere + " --quota a=1":         {2, nowhere},
		trace:                                                        {2, "there are no queues"},
		trace + " --quota cpu=many":                                  {2, "--quota: cpu=many: it must be an amount"},
		trace + " --policy Greedy":                                   {2, `--policy: "Greedy" must begin with one of Whole, Staged`},
		trace + " --policy Staged+Strict":                            {2, `--policy: "Staged+Strict": there is no setting "Strict"`},
		trace + " -f x --quota cpu=1":                                {2, "leave one out"},
		trace + " -f " + queues + " -f " + queues:                    {2, "--filename is there more than once"},
		trace + " -f " + nowhere:                                     {2, nowhere},
		trace + " -o wide --quota cpu=1":                             {2, "must be one of text, json, yaml"},
		"simulate --trace " + jobs + " --quota cpu=1":                {2, jobs + ": the first line has no column submit"},
		"simulate --trace - --quota cpu=1":                           {2, "standard input: the trace is empty"},
		trace + " --quota nvidia.com/gpu=64,cpu=8 --policy Whole":    {0, "3 jobs, submitted over"},
		trace + " -n other -f " + queues:                             {1, "Whole: 3 of 3 jobs never start: other/job-2: LocalQueue other/default does not exist\n"},
		"simulate x -n other":                                        {2, "--namespace is for traces"},
		"simulate convert --from slurm -n other --queue all " + jobs: {0, "0,all,1*cpu=4,60,job-1,other,,,\n"},
		"simulate convert --from slurm --queue all " + jobs:          {0, "0,all,1*cpu=4,60,job-1,default,,,\n"},
		"simulate convert " + jobs:                                   {2, `required flag(s) "from" not set`},
		"simulate convert --from lsf " + jobs:                        {2, `--from is "lsf": it must be slurm or swf`},
		"simulate convert --from swf " + nowhere:                     {2, nowhere},
		"simulate convert --from swf " + jobs:                        {2, jobs + ": line 1: has 1 fields"},
		"simulate convert --from slurm " + file:                      {2, "no field JobID: run sacct"},
	} {
		t.Run(line, func(t *testing.T) {
			out, code, err := runVerb(t.Context(), strings.NewReader(""), strings.Fields(line)...)
			if err != nil {
				out += err.Error()
			}
			if code != want.code || !strings.Contains(out, want.text) || err != nil && exitcode.Of(err) != code {
				t.Errorf("exit code %d, want %d:\n%s\nwant\n%s", code, want.code, out, want.text)
			}
		})
	}
}
