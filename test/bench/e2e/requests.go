package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	audit "k8s.io/apiserver/pkg/apis/audit/v1"

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

// writeAuditPolicy writes the policy into a new file, which the caller removes.
func writeAuditPolicy() (string, error) {
	file, err := os.CreateTemp("", "bench-e2e-*.yaml")
	if err != nil {
		return "", fmt.Errorf("create the audit policy: %w", err)
	}
	_, err = file.WriteString(auditPolicy)
	return file.Name(), errors.Join(err, file.Close())
}

// countRequests counts what has been requested since a time, according to an audit log, by writer, resource and verb.
func countRequests(path string, since time.Time) (counts, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	c := counts{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e audit.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("decode an event of the audit log: %w", err)
		}
		if !e.RequestReceivedTimestamp.Time.Before(since) {
			c[requestOf(&e)]++
		}
	}
	return c, lines.Err()
}

// figures reports the requests for each of so many parts of a run, by who has sent them.
func (c counts) figures(run string, parts int, unit string) []figure {
	sums := maps.Clone(c)
	for key, n := range c {
		writer, _, _ := strings.Cut(key, "/")
		sums[writer] += n
	}
	var figures []figure
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		figures = append(figures, figure{name: run + "/requests/" + key, value: sums[key] / float64(parts), unit: unit})
	}
	return figures
}

// writers are the names of the users whose requests are counted.
var writers = map[string]string{testenv.ManagerUser: "tranche", controlplane.JobSetUser: "jobset", jobControllerUser: "job"}

// requestOf is the writer, the resource and the verb of an event.
func requestOf(e *audit.Event) string {
	resource := "none"
	if o := e.ObjectRef; o != nil && o.Resource != "" {
		resource = strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/")
	}
	return cmp.Or(writers[e.User.Username], "others") + "/" + resource + "/" + e.Verb
}
