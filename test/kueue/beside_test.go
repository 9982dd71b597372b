package kueue_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tranche-dev/tranche/test/testenv"
)

// beside installs Tranche beside Kueue once for all containers of specs that need it, and starts its manager. The first of them does it.
type besideKueue struct {
	isInstalled bool
	manager     *testenv.Manager
}

var shared besideKueue

// startBeside installs Tranche beside Kueue and starts its manager, unless an earlier spec has.
func startBeside(ctx context.Context) {
	GinkgoHelper()
	if !shared.isInstalled {
		Expect(env.InstallBeside(ctx)).To(Succeed())
		shared.isInstalled = true
	}
	if shared.manager == nil {
		var err error
		shared.manager, err = env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}})
		Expect(err).NotTo(HaveOccurred())
	}
}

// stopBeside kills the manager and removes what startBeside has installed.
func stopBeside(ctx context.Context) {
	GinkgoHelper()
	if shared.manager != nil {
		Expect(shared.manager.Kill()).To(Succeed())
	}
	if shared.isInstalled {
		Expect(env.RemoveBeside(ctx)).To(Succeed())
	}
	shared = besideKueue{}
}
