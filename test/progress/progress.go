// Package progress lets a suite of specs report how far it is to the program test/run. A suite imports it for that alone. Without the program it does
// nothing.
package progress

import (
	"encoding/json"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// FileVariable is the environment variable with the path of the file that all suites append their reports to. Processes that run one suite in parallel
// share it: each report is one write.
const FileVariable = "TRANCHE_TEST_PROGRESS"

// A Report is one line of the file, as JSON: that a suite begins, or that one of its specs has ended.
type Report struct {
	// Package is the directory of the suite.
	Package string `json:"package"`
	// Specs is how many will run, where a suite begins.
	Specs int `json:"specs,omitempty"`
	// Spec is the one that has ended, Failed whether it has failed, and Seconds how long it took.
	Spec    string  `json:"spec,omitempty"`
	Failed  bool    `json:"failed,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

var _ = ginkgo.ReportBeforeSuite(func(r ginkgo.Report) { write(&Report{Specs: r.PreRunStats.SpecsThatWillRun}) })

var _ = ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
	if !r.State.Is(types.SpecStateSkipped | types.SpecStatePending) {
		write(&Report{Spec: r.FullText(), Failed: r.Failed(), Seconds: r.RunTime.Seconds()})
	}
})

// write appends a report to the file, if there is one. Tests do not fail because of it.
func write(r *Report) {
	path := os.Getenv(FileVariable)
	if path == "" {
		return
	}
	var err error
	if r.Package, err = os.Getwd(); err != nil {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // what was written is in the file
	_, _ = file.Write(append(line, '\n'))
}
