package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// auditPolicy logs the metadata of all requests of the writers whose requests are counted.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: None
  verbs: [watch]
- level: None
  resources: [{group: coordination.k8s.io}]
- level: Metadata
  users: ['` + testenv.ManagerUser + `', '` + controlplane.JobSetUser + `', '` + jobControllerUser + `']
- level: None
`

// jobControllerUser is the Job controller of kube-controller-manager.
const jobControllerUser = "system:serviceaccount:kube-system:job-controller"

// writeAuditPolicy writes the policy into a new directory, which the caller removes.
func writeAuditPolicy() (string, error) {
	dir, err := os.MkdirTemp("", "bench-e2e-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the audit policy: %w", err)
	}
	path := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(path, []byte(auditPolicy), 0o600); err != nil {
		return "", fmt.Errorf("write the audit policy: %w", err)
	}
	return path, nil
}

// A requestKey says who has requested what.
type requestKey struct{ writer, resource, verb string }

// requestCounts are numbers of requests.
type requestCounts map[requestKey]int

// An auditEvent is the part of one that is read. The API server writes it when it has answered.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Received metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// countRequests counts what has been requested since a time, according to an audit log.
func countRequests(path string, since time.Time) (requestCounts, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	counts := requestCounts{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("decode an event of the audit log: %w", err)
		}
		if !e.Received.Time.Before(since) {
			counts[e.key()]++
		}
	}
	return counts, lines.Err()
}

// figures reports the requests for each of so many parts of a run, by who has sent them.
func (c requestCounts) figures(run string, parts int, unit string) []figure {
	sums := map[string]int{}
	for key, n := range c {
		sums[key.writer] += n
	}
	var figures []figure
	for _, writer := range slices.Sorted(maps.Keys(sums)) {
		figures = append(figures, figure{name: fmt.Sprintf("%s/requests/%s", run, writer), value: float64(sums[writer]) / float64(parts), unit: unit})
	}
	keys := slices.SortedFunc(maps.Keys(c), func(a, b requestKey) int {
		return cmp.Or(cmp.Compare(a.writer, b.writer), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	for _, key := range keys {
		figures = append(figures, figure{
			name: fmt.Sprintf("%s/requests/%s/%s/%s", run, key.writer, key.resource, key.verb), value: float64(c[key]) / float64(parts), unit: unit,
		})
	}
	return figures
}

// key says which requests an event belongs to.
func (e *auditEvent) key() requestKey {
	key := requestKey{writer: writerOf(e.User.Username), resource: e.ObjectRef.Resource, verb: e.Verb}
	if e.ObjectRef.Subresource != "" {
		key.resource += "/" + e.ObjectRef.Subresource
	}
	if key.resource == "" {
		key.resource = "none"
	}
	return key
}

func writerOf(user string) string {
	writers := []struct{ user, name string }{
		{testenv.ManagerUser, "tranche"}, {controlplane.JobSetUser, "jobset"}, {jobControllerUser, "job"},
	}
	i := slices.IndexFunc(writers, func(w struct{ user, name string }) bool { return w.user == user })
	if i < 0 {
		return "others"
	}
	return writers[i].name
}
