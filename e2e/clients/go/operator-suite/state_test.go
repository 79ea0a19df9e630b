package harbour

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
)

const definitions = "../../harbour/definitions.yaml"

// scheme has the kinds that the tests and the operator use.
var scheme = runtime.NewScheme()

func init() {
	log.SetLogger(logr.Discard())
	must(clientscheme.AddToScheme(scheme))
	must(AddToScheme(scheme))
}

// state is what a test begins with: the definitions and fixtures, a running operator, and a namespace without Moorings.
type state struct {
	// WithWatch is a client of the administrator.
	client.WithWatch
	namespace string
	// settle waits until nothing is left to happen. It is nil for a shared control plane, which is never at rest.
	settle func(testing.TB, ...coracletest.SettleOption)
}

// begin makes the state of a test. An exclusive test changes what the others rely on.
func begin(t *testing.T, isExclusive bool) *state {
	t.Helper()
	var controlPlane *coracletest.ControlPlane
	switch mode := os.Getenv("CORACLE_STATE"); mode {
	case "", "fork":
		controlPlane = coracletest.Template(t, "harbour", setUp).Fork(t)
	case "own":
		controlPlane = coracletest.Start(t)
		setUp(t, controlPlane)
	case "shared":
		return share(t, isExclusive)
	default:
		t.Fatalf("CORACLE_STATE is %q: not fork, own or shared", mode)
	}
	config := configOf(t, controlPlane)
	stop := operate(t, config)
	t.Cleanup(func() { check(t, stop()) })
	return &state{clientOf(t, config), metav1.NamespaceDefault, controlPlane.Settle}
}

// setUp creates the definitions and 100 fixtures, one of which is a workload that runs.
func setUp(t testing.TB, controlPlane *coracletest.ControlPlane) {
	t.Helper()
	config := configOf(t, controlPlane)
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{definitions}, ErrorIfPathMissing: true})
	check(t, err)
	administrator := clientOf(t, config)
	check(t, administrator.Create(t.Context(), &Harbour{ObjectMeta: metav1.ObjectMeta{Name: "main"}}))
	kinds := []string{"Buoy", "Crane", "Ferry", "Pier", "Pilot", "Tug"}
	check(t, administrator.Create(t.Context(), lighthouse()))
	for number := range 98 {
		fixture := &unstructured.Unstructured{}
		fixture.SetGroupVersionKind(GroupVersion.WithKind(kinds[number%len(kinds)]))
		fixture.SetNamespace(metav1.NamespaceDefault)
		fixture.SetName(fmt.Sprintf("fixture-%d", number))
		check(t, administrator.Create(t.Context(), fixture))
	}
	controlPlane.Settle(t)
}

// lighthouse returns a Deployment beside those of the Moorings.
func lighthouse() *appsv1.Deployment {
	labels := map[string]string{"app": "lighthouse"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "lighthouse"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "lighthouse", Image: image}}},
			},
		},
	}
}

// operate starts the operator and its webhook, and returns a function that stops both.
func operate(t testing.TB, config *rest.Config) (stop func() error) {
	t.Helper()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Each control plane has a controller of this name.
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	check(t, err)
	check(t, SetUp(manager))
	webhook := httptest.NewTLSServer(admission.WithValidator(scheme, Validator{manager.GetAPIReader()}))
	register(t, clientOf(t, config), webhook)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	return func() error {
		cancel()
		webhook.Close()
		return <-ended
	}
}

// register makes the control plane call the webhook.
func register(t testing.TB, administrator client.Client, webhook *httptest.Server) {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	check(t, administrator.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "harbour"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:         "images.harbour.example",
			ClientConfig: admissionv1.WebhookClientConfig{URL: &webhook.URL, CABundle: authority},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{GroupVersion.Group}, APIVersions: []string{"v1"}, Resources: []string{"moorings"}},
			}},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}))
}

// shared is the control plane of all tests, which clean up after themselves.
var shared struct {
	once         sync.Once
	controlPlane *coracletest.ControlPlane
	config       *rest.Config
	stop         func() error
	// tests is held by each test, and by an exclusive one alone.
	tests sync.RWMutex
}

// share makes the state of a test in the shared control plane: a namespace, which is deleted at the end of the test.
func share(t *testing.T, isExclusive bool) *state {
	t.Helper()
	if isExclusive {
		shared.tests.Lock()
		t.Cleanup(shared.tests.Unlock)
	} else {
		shared.tests.RLock()
		t.Cleanup(shared.tests.RUnlock)
	}
	shared.once.Do(func() {
		var err error
		shared.controlPlane, err = coracletest.New()
		check(t, err)
		setUp(t, shared.controlPlane)
		shared.config = configOf(t, shared.controlPlane)
		shared.stop = operate(t, shared.config)
	})
	if shared.stop == nil {
		t.Fatal("the set-up of the shared control plane failed")
	}
	shared.controlPlane.LogProblems(t)
	s := &state{WithWatch: clientOf(t, shared.config)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	check(t, s.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	t.Cleanup(func() { cleanUp(t, s) })
	return s
}

// cleanUp deletes what a test may have made, and waits until the operator and the garbage collector have done their part. It does not wait
// for the namespace: no other test uses it, and its deletion takes seconds by design.
func cleanUp(t *testing.T, s *state) {
	t.Helper()
	ctx := context.Background()
	moorings := &MooringList{}
	check(t, s.List(ctx, moorings, client.InNamespace(s.namespace)))
	for _, mooring := range moorings.Items {
		// In the foreground: what it owns is gone before it is.
		check(t, client.IgnoreNotFound(s.Delete(ctx, &mooring, client.PropagationPolicy(metav1.DeletePropagationForeground))))
		untilGone(t, s, &mooring, &MooringList{})
	}
	check(t, client.IgnoreNotFound(s.Delete(ctx, strictHarbour())))
	check(t, s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		must(shared.stop())
		must(shared.controlPlane.Stop())
	}
	os.Exit(code)
}

func configOf(t testing.TB, controlPlane *coracletest.ControlPlane) *rest.Config {
	t.Helper()
	config, err := restconfig.Of(controlPlane)
	check(t, err)
	return config
}

func clientOf(t testing.TB, config *rest.Config) client.WithWatch {
	t.Helper()
	administrator, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	check(t, err)
	return administrator
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
