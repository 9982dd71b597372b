package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// recorded is a snapshot of a cluster in which JobSets wait.
const recorded = "../../../plan/testdata/quota-raised/snapshot"

// serve runs the verb until the test ends, and returns a function that requests a path and decodes the answer.
func serve(t *testing.T, args ...string) (get func(path string, answer any) int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	cmd := dashboard.NewCommand("v1")
	cmd.SetOut(writer)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = writer.CloseWithError(cmd.ExecuteContext(ctx))
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	out := bufio.NewReader(reader)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out) //nolint:errcheck // the rest of the output does not count
	found := regexp.MustCompile(`^Dashboard of (.*): http://(\w+\.localhost):(\d+)/\?token=(\w+)\n$`).FindStringSubmatch(line)
	if len(found) == 0 || found[1] != args[1] {
		t.Fatalf("the output is %q, want the source %s", line, args[1])
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(path string, answer any) int {
		t.Helper()
		at := &url.URL{Scheme: "http", Host: "127.0.0.1:" + found[3], Path: "/"}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = found[2] + ":" + found[3] // only browsers resolve the name
		request.AddCookie(&http.Cookie{Name: "tranche-dashboard-" + found[3], Value: found[4]})
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
			t.Fatalf("%s: status %d: %v", path, response.StatusCode, err)
		}
		return response.StatusCode
	}
}

// TestSnapshot serves a snapshot without a cluster. The answers are as of the time when it was taken.
func TestSnapshot(t *testing.T) {
	get := serve(t, "--snapshot", recorded)
	taken := time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	var about struct {
		TakenAt  time.Time
		Source   string
		IsSynced bool `json:"synced"`
	}
	if get("api/v1/about", &about); !about.TakenAt.Equal(taken) || about.Source != recorded || !about.IsSynced {
		t.Errorf("about: %+v", about)
	}
	var line struct {
		Items []struct{ Name, Reason string }
	}
	if get("api/v1/queues/ml/workloads?list=pending", &line); len(line.Items) != 2 || line.Items[0].Reason != "WaitingForQuota" {
		t.Errorf("the line of ClusterQueue ml is %+v", line.Items)
	}
	var js jobSetAnswer
	// What would let the stage in is computed in the background. The answer then stays.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		js = jobSetAnswer{}
		return get("api/v1/jobsets/default/second", &js) == http.StatusOK && js.WithoutSets == "", nil
	})
	if err != nil || !js.Now.Equal(taken) || len(js.Stages) == 0 {
		t.Fatalf("JobSet second: %v, %+v", err, js)
	}
	if first := js.Stages[0]; first.LetIn == nil || len(first.LetIn.Sets) == 0 || !first.LetIn.Taken.Equal(taken) || first.Explanation == nil {
		t.Errorf("the first stage of JobSet second is %+v", first)
	}
	var problem struct{ Error string }
	if status := get("api/v1/jobsets/default/gone", &problem); status != http.StatusNotFound || !strings.Contains(problem.Error, "not found") {
		t.Errorf("a JobSet that the snapshot lacks: status %d, %s", status, problem.Error)
	}
}

// TestNote serves a snapshot with queues of one Cohort that preempt: the running manager may give another reason.
func TestNote(t *testing.T) {
	get := serve(t, "--snapshot", "../../../plan/testdata/fair-weights/snapshot")
	var js jobSetAnswer
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return get("api/v1/jobsets/default/e", &js) == http.StatusOK && len(js.Stages) > 0 && js.Stages[0].Explanation != nil, nil
	})
	if err != nil || !strings.Contains(js.Stages[0].Note, "may differ from those of the running manager") {
		t.Errorf("JobSet e: %v, %+v", err, js)
	}
}

type jobSetAnswer struct {
	Now         time.Time
	WithoutSets string
	Stages      []struct {
		Explanation *struct{ Message string }
		Note        string
		LetIn       *struct {
			Sets  []string
			Taken time.Time
		}
	}
}

// TestManifests serves manifests, which lack what is not given.
func TestManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "queue.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: ml}\nspec: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	get := serve(t, "--snapshot", file)
	var tree struct {
		Items []struct{ Name string }
	}
	if get("api/v1/queues", &tree); len(tree.Items) != 1 || tree.Items[0].Name != "ml" {
		t.Errorf("the tree is %+v", tree.Items)
	}
}

func TestBadSnapshot(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such file":         {[]string{"--snapshot", nowhere}, nowhere},
		"another source":       {[]string{"--snapshot", recorded, "--kubeconfig", "x"}, "[snapshot kubeconfig]"},
		"a namespace":          {[]string{"--snapshot", recorded, "-n", "x"}, "[snapshot namespace]"},
		"no port":              {[]string{"--snapshot", recorded, "--port", "70000"}, "--port is 70000"},
		"a part of an archive": {[]string{"--snapshot", writeFile(t, "\x1f\x8b\x08")}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := dashboard.NewCommand("v1")
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(c.args)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if name == "no such file" && exitcode.Of(err) != exitcode.BadInput {
				t.Errorf("the exit code is %d", exitcode.Of(err))
			}
		})
	}
}

// writeFile writes an archive, and returns its path.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.tar.gz")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
