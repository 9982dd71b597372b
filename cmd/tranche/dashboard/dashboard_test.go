package dashboard_test

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

func TestBadInput(t *testing.T) {
	// No API server answers at this address.
	config := clientcmdapi.NewConfig()
	config.Clusters["gone"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
	config.CurrentContext = "gone"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // nothing was sent
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args  []string
		isBad bool
		want  string
	}{
		"no port":                      {[]string{"--port", "70000"}, true, "--port is 70000: it must be from 1 to 65535"},
		"unknown flag":                 {[]string{"--colour"}, true, "--colour"},
		"argument":                     {[]string{"now"}, true, "now"},
		"port in use":                  {[]string{"--port", port}, false, "port " + port + " is in use: choose another one with --port"},
		"API server that is not there": {nil, false, "list clusterqueues.kueue.x-k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := dashboard.NewCommand("v1")
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(append(tc.args, "--kubeconfig", kubeconfig))
			err := cmd.ExecuteContext(t.Context())
			if err == nil || (exitcode.Of(err) == exitcode.BadInput) != tc.isBad || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
