// Package restconfig starts Coracle control planes for Go tests, and returns the configuration of client-go for them.
//
//	func TestSomething(t *testing.T) {
//		clients, err := kubernetes.NewForConfig(restconfig.Start(t))
//		// ...
//	}
package restconfig

import (
	"testing"

	"coracle.dev/clients/go/coracletest"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Start is coracletest.Start, and returns the configuration of the administrator.
func Start(t testing.TB, flags ...string) *rest.Config {
	t.Helper()
	config, err := Of(coracletest.Start(t, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// A Base is a control plane that was set up once in this process, for tests that each fork it.
type Base struct {
	base *coracletest.Base
}

// Template is coracletest.Template, and gives the configuration of the administrator to the set-up.
func Template(t testing.TB, name string, setUp func(t testing.TB, config *rest.Config), flags ...string) *Base {
	t.Helper()
	return &Base{coracletest.Template(t, name, func(t testing.TB, controlPlane *coracletest.ControlPlane) {
		t.Helper()
		config, err := Of(controlPlane)
		if err != nil {
			t.Fatal(err)
		}
		setUp(t, config)
	}, flags...)}
}

// Fork makes a control plane for a test that begins with what was set up, and returns the configuration of its administrator.
func (b *Base) Fork(t testing.TB, options ...coracletest.ForkOption) *rest.Config {
	t.Helper()
	_, config := b.ForkControlPlane(t, options...)
	return config
}

// ForkControlPlane is Fork, and returns the control plane, too: a test waits for it to settle, and turns its clock.
func (b *Base) ForkControlPlane(t testing.TB, options ...coracletest.ForkOption) (*coracletest.ControlPlane, *rest.Config) {
	t.Helper()
	controlPlane := b.base.Fork(t, options...)
	config, err := Of(controlPlane)
	if err != nil {
		t.Fatal(err)
	}
	return controlPlane, config
}

// Of returns the configuration of the administrator of a control plane, without a rate limit: tests are bursts of requests, and
// client-go's default of 5 in a second makes them slow.
func Of(controlPlane *coracletest.ControlPlane) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(controlPlane.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}
