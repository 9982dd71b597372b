// Package doctor is the verb that examines an installation: whether all of it is there, whether a manager leads, and whether its queues admit anything.
package doctor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Level says how bad a Finding is.
type Level string

const (
	// OK is a check without a problem.
	OK Level = "OK"
	// Unknown is a check that could not be made, for lack of rights.
	Unknown Level = "Unknown"
	// Warning is a problem that concerns some queues or flavors, or that is there on purpose.
	Warning Level = "Warning"
	// Error is a problem because of which Tranche does not work.
	Error Level = "Error"
)

// A Finding is the result of a check. A check has one Finding of level OK, or one for each problem.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	// Cure is what to do about it, or empty.
	Cure string `json:"cure,omitempty"`
}

// A Report has all findings, in the order in which the checks depend on each other.
type Report struct {
	// Version is that of the program.
	Version  string    `json:"version"`
	Findings []Finding `json:"findings"`
}

// NewCommand returns the verb of a program of this version.
func NewCommand(programVersion string) *cobra.Command {
	flags, format := query.Flags{Version: programVersion}, output.Text
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the installation",
		Long: "Examine the installation of Tranche in a cluster, and say what is wrong and what to do about it. Nothing is changed.\n\n" +
			"  Kubernetes  the version of the API server, and its clock\n" +
			"  CRDs        those of queues and JobSets, with the fields of Tranche\n" +
			"  Policies    the admission policies, their bindings and their parameters\n" +
			"  Roles       the rights of the manager and of users\n" +
			"  Webhooks    those of others without a server, and those of Kueue's manager\n" +
			"  Manager     its pods, its leader, and since when it leads\n" +
			"  Services    those of the metrics and of the visibility API\n" +
			"  Flavors     whether there are nodes with their labels\n" +
			"  Queues      ClusterQueues and LocalQueues that admit nothing, and why\n\n" +
			"CRDs, policies and roles are compared with those of this program: it should have the version of the manager. Checks that need rights which you\n" +
			"lack are Unknown.\n\n" +
			"Exit code: 0 without errors, also with warnings; 1 with errors, or if the API server does not answer; 2 on bad input.",
		Example: "  tranche doctor\n  tranche doctor -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := newExamination(&flags)
			if err != nil {
				return err
			}
			if err := e.run(cmd.Context()); err != nil {
				return err
			}
			if format.IsText() {
				err = writeText(cmd.OutOrStdout(), &e.report)
			} else {
				err = format.Write(cmd.OutOrStdout(), &e.report)
			}
			if err != nil {
				return fmt.Errorf("print the findings: %w", err)
			}
			if n := e.report.count(Error); n > 0 {
				return fmt.Errorf("the installation has %s", plural(n, "error"))
			}
			return nil
		},
	}
	flags.AddKubeconfig(cmd)
	format.Add(cmd, output.JSON, output.YAML)
	return cmd
}

// An examination makes the checks.
type examination struct {
	client client.Client
	config *rest.Config
	report Report
	// now is the time of the API server.
	now time.Time
	// mode is that of the manager, and isElected is true if the manager asks for the Lease.
	mode      configapi.Mode
	isElected bool
}

func newExamination(flags *query.Flags) (*examination, error) {
	reader, err := flags.ConnectToRead()
	if err != nil {
		return nil, err
	}
	_, config, err := query.LoadKubeconfig(flags.Kubeconfig, flags.Version)
	if err != nil {
		return nil, err
	}
	return &examination{client: reader, config: config, report: Report{Version: flags.Version}, mode: configapi.ModeInstead, isElected: true}, nil
}

// run makes all checks. An error means that the API server does not answer.
func (e *examination) run(ctx context.Context) error {
	if err := e.kubernetes(ctx); err != nil {
		return err
	}
	for _, check := range []struct {
		name string
		of   func(context.Context, *check) error
	}{
		{"Configuration", e.configuration},
		{"CRDs", e.crds},
		{"Policies", e.policies},
		{"Roles", e.roles},
		{"Webhooks", e.webhooks},
		{"Manager", e.manager},
		{"Services", e.services},
		{"Flavors", e.flavors},
		{"Queues", e.queues},
	} {
		c := newCheck(check.name)
		switch err := check.of(ctx, c); {
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			c.add(Unknown, "ask for the right, or run the command as an administrator", "%s", err)
		case err != nil:
			return fmt.Errorf("%s: %w", check.name, err)
		}
		e.report.Findings = append(e.report.Findings, c.findings()...)
	}
	return nil
}

// A check collects findings.
type check struct {
	name string
	all  []Finding
	// fine is the message if there is no problem.
	fine string
}

func newCheck(name string) *check { return &check{name: name} }

func (c *check) add(level Level, cure, format string, args ...any) {
	c.all = append(c.all, Finding{Check: c.name, Level: level, Message: fmt.Sprintf(format, args...), Cure: cure})
}

func (c *check) warn(cure, format string, args ...any) { c.add(Warning, cure, format, args...) }

func (c *check) fail(cure, format string, args ...any) { c.add(Error, cure, format, args...) }

func (c *check) findings() []Finding {
	if len(c.all) == 0 {
		return []Finding{{Check: c.name, Level: OK, Message: c.fine}}
	}
	return c.all
}

const (
	// oldestKubernetes is the oldest minor version that the manager runs on.
	oldestKubernetes = 36
	// maxSkew is by how much the clock of the API server may differ from the one here.
	maxSkew = 5 * time.Second
)

// kubernetes checks the version of the API server and its clock. The header of an answer has the time in whole seconds.
func (e *examination) kubernetes(ctx context.Context) error {
	httpClient, err := rest.HTTPClientFor(e.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	url, _, err := rest.DefaultServerUrlFor(e.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("ask for the version of the API server: %w", err)
	}
	began := time.Now()
	response, err := httpClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for the version of the API server: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask for the version of the API server: %w", err)
	}
	c := newCheck("Kubernetes")
	if e.now, err = http.ParseTime(response.Header.Get("Date")); err != nil {
		e.now = time.Now()
	}
	checkKubernetes(c, body)
	if skew := e.now.Sub(began); skew.Abs() > maxSkew {
		c.warn("synchronize the clocks: maximum execution times, Leases and expected starts are points in time", "the clock of the API server differs from the one here by %s", skew.Round(time.Second))
	}
	e.report.Findings = append(e.report.Findings, c.findings()...)
	return nil
}

// checkKubernetes checks what the API server says about its version.
func checkKubernetes(c *check, answer []byte) {
	info, err := parseVersion(answer)
	switch minor, known := minorOf(info); {
	case err != nil || !known:
		c.add(Unknown, "", "the version of the API server is not known")
	case minor < oldestKubernetes:
		c.fail(fmt.Sprintf("upgrade to 1.%d or later: older ones lack what the admission policies need", oldestKubernetes), "the API server has version %s", info.GitVersion)
	default:
		c.fine = info.GitVersion
	}
}

// minorOf returns the minor version, also if it ends with a plus sign.
func minorOf(info *version.Info) (minor int, known bool) {
	if info == nil || info.Major != "1" {
		return 0, false
	}
	_, err := fmt.Sscanf(info.Minor, "%d", &minor)
	return minor, err == nil
}

// configuration reads the configuration of the manager, from the ConfigMap that config/default and the chart install.
func (e *examination) configuration(ctx context.Context, c *check) error {
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.ManagerServiceAccount}
	switch err := e.client.Get(ctx, key, &object); {
	case apierrors.IsNotFound(err):
		c.warn("apply config/default, or install the chart", "ConfigMap %s does not exist: the defaults are assumed", key)
		return nil
	case err != nil:
		return fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	config, err := configapi.Decode([]byte(object.Data[snapshot.ConfigKey]))
	if err != nil {
		c.fail("correct it, or use the version of this program that the manager has", "ConfigMap %s: %s", key, err)
		return nil
	}
	e.mode, e.isElected = config.Mode, *config.LeaderElection.LeaderElect
	c.fine = "mode " + string(e.mode)
	return nil
}

func (r *Report) count(level Level) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Level == level {
			n++
		}
	}
	return n
}

// writeText prints a table, with the cure below each problem, and a line that counts the problems.
func writeText(out io.Writer, r *Report) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0) // a strings.Builder takes all
	for i := range r.Findings {
		f := &r.Findings[i]
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, strings.ReplaceAll(f.Message, "\n", " "))
		if f.Cure != "" {
			_, _ = fmt.Fprintf(w, "\t\t-> %s\n", f.Cure)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var counts []string
	for _, level := range []Level{Error, Warning, Unknown} {
		if n := r.count(level); n > 0 && level == Unknown {
			counts = append(counts, plural(n, "check")+" not made")
		} else if n > 0 {
			counts = append(counts, plural(n, strings.ToLower(string(level))))
		}
	}
	if len(counts) == 0 {
		counts = []string{"No problems"}
	}
	_, err := fmt.Fprintf(out, "%s\n%s.\n", b.String(), strings.Join(counts, ", "))
	return err
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// list names some of many objects.
func list(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
