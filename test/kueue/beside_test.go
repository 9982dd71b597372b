package kueue_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tranche-dev/tranche/test/testenv"
)

// besideKueue is Tranche as it is installed beside Kueue. All containers of specs share it that need it, from the first one on.
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
		launchBeside()
	}
	Expect(shared.manager.WaitReady(ctx)).To(Succeed())
}

// launchBeside starts the manager, and does not wait until it is ready.
func launchBeside() {
	GinkgoHelper()
	var err error
	shared.manager, err = env.LaunchManager(testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}})
	Expect(err).NotTo(HaveOccurred())
}

// removeBeside kills the manager and removes what startBeside has installed, for specs about Kueue without Tranche.
func removeBeside(ctx context.Context) {
	GinkgoHelper()
	killBeside()
	if shared.isInstalled {
		Expect(env.RemoveBeside(ctx)).To(Succeed())
	}
	shared = besideKueue{}
}

func killBeside() {
	GinkgoHelper()
	if shared.manager != nil {
		Expect(shared.manager.Kill()).To(Succeed())
		shared.manager = nil
	}
}
