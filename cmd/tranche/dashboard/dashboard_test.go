package dashboard_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
)

var errBadInput = errors.New("bad input")

func TestBadInput(t *testing.T) {
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
			cmd := dashboard.NewCommand(program())
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(tc.args)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || errors.Is(err, errBadInput) != tc.isBad || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// program has a kubeconfig with an address at which no API server answers.
func program() dashboard.Program {
	return dashboard.Program{
		Load: func(string) (clientcmd.ClientConfig, *rest.Config, error) {
			const server = "http://127.0.0.1:1"
			config := clientcmdapi.NewConfig()
			config.Clusters["gone"] = &clientcmdapi.Cluster{Server: server}
			config.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
			config.CurrentContext = "gone"
			return clientcmd.NewDefaultClientConfig(*config, nil), &rest.Config{Host: server}, nil
		},
		Scheme: func() (*runtime.Scheme, error) {
			scheme := runtime.NewScheme()
			return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme))
		},
		BadInput: func(err error) error { return fmt.Errorf("%w: %w", errBadInput, err) },
	}
}
