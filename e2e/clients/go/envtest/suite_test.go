// Package envtest runs a suite of controller-runtime's envtest, unchanged, on the programs in KUBEBUILDER_ASSETS. It passes on the
// real ones too. With CORACLE_CONTROLLERS, the tests of the controllers that it names run in place of those of their absence.
package envtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const deadline = 30 * time.Second

// The controllers that the tests use.
const (
	garbageCollector = "garbage-collector-controller"
	namespaces       = "namespace-controller"
	serviceAccounts  = "serviceaccount-controller"
)

var (
	environment *envtest.Environment
	config      *rest.Config
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	environment = &envtest.Environment{}
	began := time.Now()
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		return 1
	}
	fmt.Printf("started in %v\n", time.Since(began).Round(time.Millisecond))
	code := m.Run()
	began = time.Now()
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		return 1
	}
	fmt.Printf("stopped in %v\n", time.Since(began).Round(time.Millisecond))
	return code
}

func typed(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// isSelected tells whether a controller runs beside the API server.
func isSelected(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("CORACLE_CONTROLLERS"), ","), name)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func namespace(t *testing.T, clients kubernetes.Interface) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}
	created, err := clients.CoreV1().Namespaces().Create(testContext(t), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, deadline, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestConfigMapsAreCreatedListedAndWatched(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	configMaps := clients.CoreV1().ConfigMaps(namespace(t, clients))
	before, err := configMaps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}}
	created, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := configMaps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil || got.UID != created.UID || got.Data["colour"] != "blue" {
		t.Fatalf("got %v, %v", got, err)
	}
	if _, err := configMaps.Create(ctx, object, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("a second one: %v", err)
	}
	if err := configMaps.Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := configMaps.List(ctx, metav1.ListOptions{})
	if err != nil || len(after.Items) != len(before.Items) {
		t.Fatalf("left: %v, %v", after.Items, err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		select {
		case event := <-events.ResultChan():
			if event.Type != want || event.Object.(*corev1.ConfigMap).UID != created.UID {
				t.Fatalf("%v %v, not %v", event.Type, event.Object, want)
			}
		case <-ctx.Done():
			t.Fatalf("no %v event", want)
		}
	}
}

func statefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name,
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
			},
		},
	}
}

// A suite plays the controllers of workloads itself.
func TestStatusesOfWorkloadsAreLeftToTheSuite(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	name := namespace(t, clients)
	sets := clients.AppsV1().StatefulSets(name)
	set, err := sets.Create(ctx, statefulSet("db"), metav1.CreateOptions{})
	if err != nil || *set.Spec.Replicas != 1 {
		t.Fatalf("created %v, %v", set, err)
	}
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: 1}
	if set, err = sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil || set.Status.ReadyReplicas != 1 {
		t.Fatalf("status %v, %v", set, err)
	}
	pods, err := clients.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Fatalf("pods: %v, %v", pods, err)
	}
	if nodes, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil || len(nodes.Items) != 0 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
}

func TestUsersHaveTheRightsOfTheirBindings(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	name := namespace(t, clients)
	user, err := environment.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jane, err := kubernetes.NewForConfig(user.Config())
	if err != nil {
		t.Fatal(err)
	}
	review, err := jane.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "jane" || review.Status.UserInfo.Groups[0] != "readers" {
		t.Fatalf("jane is %v, %v", review, err)
	}
	if _, err := jane.CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without a binding: %v", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
	}
	if _, err := clients.RbacV1().RoleBindings(name).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := jane.CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatalf("with a binding: %v", err)
	}
}

// The tokens are signed with envtest's key, and name its issuer.
func TestServiceAccountTokensAuthenticate(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	name := namespace(t, clients)
	if !isSelected(serviceAccounts) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := clients.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			t.Fatalf("something else makes accounts: %v", err)
		}
	}
	var token *authenticationv1.TokenRequest
	eventually(t, "the default account", func(ctx context.Context) (bool, error) {
		var err error
		token, err = clients.CoreV1().ServiceAccounts(name).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	server := environment.ControlPlane.APIServer.SecureServing.URL("https", "/")
	if audiences := token.Spec.Audiences; len(audiences) != 1 || audiences[0] != server.String() {
		t.Fatalf("audiences %v, not %v", audiences, server)
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.BearerToken = token.Status.Token
	account, err := kubernetes.NewForConfig(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	review, err := account.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if want := "system:serviceaccount:" + name + ":default"; err != nil || review.Status.UserInfo.Username != want {
		t.Fatalf("the account is %v, %v", review, err)
	}
}

func TestServerSideApplyOwnsFields(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	name := namespace(t, clients)
	apply := func(colour, manager string, force bool) (*corev1.ConfigMap, error) {
		object := corev1apply.ConfigMap("applied", name).WithData(map[string]string{"colour": colour})
		return clients.CoreV1().ConfigMaps(name).Apply(ctx, object, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("blue", "first", false); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("green", "second", false); !apierrors.IsConflict(err) {
		t.Fatalf("no conflict: %v", err)
	}
	applied, err := apply("green", "second", true)
	if err != nil || applied.Data["colour"] != "green" {
		t.Fatalf("forced: %v, %v", applied, err)
	}
}

// reconciler gives each ConfigMap with the label a Secret of the same name.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	owner := &corev1.ConfigMap{}
	if err := r.Get(ctx, request.NamespacedName, owner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if owner.Labels["suite"] != "manager" {
		return ctrl.Result{}, nil
	}
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.StringData = map[string]string{"colour": owner.Data["colour"]}
		return controllerutil.SetControllerReference(owner, owned, r.Scheme())
	})
	return ctrl.Result{}, err
}

func TestAManagerReconcilesAndOwnedObjectsAreLeftToTheGarbageCollector(t *testing.T) {
	clients := typed(t)
	name := namespace(t, clients)
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- manager.Start(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("the manager: %v", err)
		}
	}()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "owner", Labels: map[string]string{"suite": "manager"}},
		Data:       map[string]string{"colour": "blue"},
	}
	if err := manager.GetClient().Create(ctx, object); err != nil {
		t.Fatal(err)
	}
	secrets := clients.CoreV1().Secrets(name)
	eventually(t, "the secret", func(ctx context.Context) (bool, error) {
		secret, err := secrets.Get(ctx, "owner", metav1.GetOptions{})
		return err == nil && string(secret.Data["colour"]) == "blue", client.IgnoreNotFound(err)
	})
	// The reconciler makes it again.
	if err := secrets.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the secret, made again", func(ctx context.Context) (bool, error) {
		_, err := secrets.Get(ctx, "owner", metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err := manager.GetClient().Delete(ctx, object); err != nil {
		t.Fatal(err)
	}
	if !isSelected(garbageCollector) {
		if _, err := secrets.Get(ctx, "owner", metav1.GetOptions{}); err != nil {
			t.Fatalf("the secret of the deleted owner: %v", err)
		}
		return
	}
	eventually(t, "the deletion of the secret", func(ctx context.Context) (bool, error) {
		_, err := secrets.Get(ctx, "owner", metav1.GetOptions{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func TestDeletedNamespacesAreLeftToTheirController(t *testing.T) {
	clients, ctx := typed(t), testContext(t)
	name := namespace(t, clients)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
	if _, err := clients.CoreV1().ConfigMaps(name).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if !isSelected(namespaces) {
		left, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil || left.Status.Phase != corev1.NamespaceTerminating {
			t.Fatalf("the namespace: %v, %v", left, err)
		}
		if _, err := clients.CoreV1().ConfigMaps(name).Get(ctx, "content", metav1.GetOptions{}); err != nil {
			t.Fatalf("its content: %v", err)
		}
		if _, err := clients.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "more"},
		}, metav1.CreateOptions{}); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Fatalf("more content: %v", err)
		}
		return
	}
	eventually(t, "the end of the namespace", func(ctx context.Context) (bool, error) {
		_, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
