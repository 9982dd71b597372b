// Package integration_test checks the behaviour of the API server with Tranche's CRDs and guards, on a real control plane without the
// manager.
package integration_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/controlplane"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	poll     = 50 * time.Millisecond
	patience = 60 * time.Second
)

// An environment is what the specs work on.
type environment struct {
	*testenv.World
	adminClient client.WithWatch
}

var env environment

// clientAs returns a client for a user.
func (e environment) clientAs(user string, groups ...string) client.Client {
	GinkgoHelper()
	c, err := e.As(user, groups...)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Tranche's CRDs and guards")
}

var _ = BeforeSuite(func(SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	w, err := testenv.Start(suite, controlplane.Config{NodePools: []controlplane.NodePool{{
		Name: "cpu", Count: 2, Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), "nvidia.com/gpu": resource.MustParse("64"),
		},
	}}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return w.Stop() })
	env = environment{w, w.Admin}
}, NodeTimeout(5*time.Minute))
