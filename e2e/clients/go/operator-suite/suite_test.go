package harbour

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const image = "quay.example/boat:1"

// scenarios are the tests of a Mooring, each of which runs for many numbers of boats.
var scenarios = []struct {
	name string
	run  func(*testing.T, *state, int32)
	// isExclusive marks those that change what the others rely on.
	isExclusive bool
}{
	{"becomes ready", becomesReady, false},
	{"is scaled", isScaled, false},
	{"follows its image", followsItsImage, false},
	{"restores what it owns", restoresWhatItOwns, false},
	{"is finalized", isFinalized, false},
	{"is deleted in the foreground", isDeletedInTheForeground, false},
	{"is refused for its image", isRefusedForItsImage, false},
	{"keeps its image", keepsItsImage, false},
	{"has limits", hasLimits, false},
	{"obeys a new harbour", obeysANewHarbour, true},
}

// TestMooring runs 200 tests, or as many as CORACLE_TESTS says.
func TestMooring(t *testing.T) {
	tests, err := strconv.Atoi(cmp.Or(os.Getenv("CORACLE_TESTS"), "200"))
	check(t, err)
	for number := range tests {
		scenario := scenarios[number%len(scenarios)]
		t.Run(fmt.Sprintf("%d %s", number, scenario.name), func(t *testing.T) {
			t.Parallel()
			boats := 1 + int32(number/len(scenarios)%5)
			scenario.run(t, begin(t, scenario.isExclusive), boats)
		})
	}
}

func becomesReady(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	settings, fleet := &corev1.ConfigMap{}, &appsv1.Deployment{}
	for _, owned := range []client.Object{settings, fleet} {
		check(t, s.Get(t.Context(), client.ObjectKeyFromObject(mooring), owned))
		if !metav1.IsControlledBy(owned, mooring) {
			t.Errorf("the owners of the %T are %v", owned, owned.GetOwnerReferences())
		}
	}
	if mooring.Status.Ready != boats || settings.Data["boats"] != fmt.Sprint(boats) || *fleet.Spec.Replicas != boats {
		t.Errorf("%d boats, but %+v, %v, %+v", boats, mooring.Status, settings.Data, fleet.Spec)
	}
	berth := berthOf(mooring)
	check(t, s.Get(t.Context(), client.ObjectKeyFromObject(berth), berth))
}

func isScaled(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	for _, boats := range []int32{boats + 3, boats} {
		s.patch(t, mooring, fmt.Sprintf(`{"spec": {"boats": %d}}`, boats))
		if mooring = s.untilReady(t, mooring); mooring.Status.Ready != boats {
			t.Errorf("%d boats, but %+v", boats, mooring.Status)
		}
	}
}

func followsItsImage(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	s.patch(t, mooring, `{"spec": {"image": "quay.example/boat:2"}}`)
	s.untilReady(t, mooring)
	pods := &corev1.PodList{}
	check(t, s.List(t.Context(), pods, client.InNamespace(s.namespace)))
	for _, pod := range pods.Items {
		if image := pod.Spec.Containers[0].Image; image != "quay.example/boat:2" && pod.DeletionTimestamp.IsZero() {
			t.Errorf("%s has the image %s", pod.Name, image)
		}
	}
}

func restoresWhatItOwns(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	settings := &corev1.ConfigMap{ObjectMeta: owned(mooring)}
	s.patch(t, settings, `{"data": {"boats": "forged"}}`)
	isRestored := func(settings *corev1.ConfigMap) bool { return settings.Data["boats"] == fmt.Sprint(boats) }
	settings = until(t, s, settings, &corev1.ConfigMapList{}, isRestored)

	check(t, s.Delete(t.Context(), settings))
	until(t, s, settings, &corev1.ConfigMapList{}, func(other *corev1.ConfigMap) bool { return other.UID != settings.UID && isRestored(other) })
}

func isFinalized(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	check(t, s.Delete(t.Context(), mooring))
	untilGone(t, s, mooring, &MooringList{})
	berth := berthOf(mooring)
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(berth), berth); !apierrors.IsNotFound(err) {
		t.Errorf("the berth: %v", err)
	}
	// The garbage collector follows.
	untilGone(t, s, &corev1.ConfigMap{ObjectMeta: owned(mooring)}, &corev1.ConfigMapList{})
	untilGone(t, s, &appsv1.Deployment{ObjectMeta: owned(mooring)}, &appsv1.DeploymentList{})
	s.expectNoPods(t)
}

func isDeletedInTheForeground(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	check(t, s.Delete(t.Context(), mooring, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	untilGone(t, s, mooring, &MooringList{})
	// Its dependents were deleted before it.
	for _, owned := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}} {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(mooring), owned); !apierrors.IsNotFound(err) {
			t.Errorf("the %T: %v", owned, err)
		}
	}
}

func isRefusedForItsImage(t *testing.T, s *state, boats int32) {
	err := s.Create(t.Context(), s.mooring("tender", boats, "rotten.example/boat:1"))
	expectRefusal(t, err, "harbour main forbids images of rotten.example")
	s.expectNoPods(t)
}

func keepsItsImage(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	err := s.Patch(t.Context(), mooring, mergePatch(`{"spec": {"image": "rotten.example/boat:1"}}`))
	expectRefusal(t, err, "harbour main forbids images of rotten.example")
	fleet := &appsv1.Deployment{}
	check(t, s.Get(t.Context(), client.ObjectKeyFromObject(mooring), fleet))
	if fleet.Generation != 1 || fleet.Spec.Template.Spec.Containers[0].Image != image {
		t.Errorf("%+v", fleet)
	}
}

func hasLimits(t *testing.T, s *state, boats int32) {
	for _, boats := range []int32{-boats, 0, 20 + boats} {
		err := s.Create(t.Context(), s.mooring("tender", boats, image))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.boats") {
			t.Errorf("%d boats: %v", boats, err)
		}
	}
	s.expectNoPods(t)
}

func obeysANewHarbour(t *testing.T, s *state, boats int32) {
	mooring := s.moor(t, boats)
	strict := strictHarbour()
	check(t, s.Create(t.Context(), strict))
	second := s.mooring("second", boats, image)
	expectRefusal(t, s.Create(t.Context(), second), "harbour strict forbids images of quay.example")
	// The first one goes on.
	s.patch(t, mooring, fmt.Sprintf(`{"spec": {"boats": %d}}`, boats+1))
	s.untilReady(t, mooring)

	check(t, s.Delete(t.Context(), strict))
	check(t, s.Create(t.Context(), second))
	s.untilReady(t, second)
}

// strictHarbour returns a Harbour that forbids the images of most tests.
func strictHarbour() *Harbour {
	return &Harbour{ObjectMeta: metav1.ObjectMeta{Name: "strict"}, Spec: HarbourSpec{Forbidden: []string{"quay.example"}}}
}

// mooring returns a Mooring that does not exist yet.
func (s *state) mooring(name string, boats int32, image string) *Mooring {
	return &Mooring{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: MooringSpec{Boats: boats, Image: image}}
}

// moor creates a Mooring, and waits until it is ready.
func (s *state) moor(t *testing.T, boats int32) *Mooring {
	t.Helper()
	mooring := s.mooring("tender", boats, image)
	check(t, s.Create(t.Context(), mooring))
	return s.untilReady(t, mooring)
}

func (s *state) untilReady(t *testing.T, mooring *Mooring) *Mooring {
	t.Helper()
	return until(t, s, mooring, &MooringList{}, func(mooring *Mooring) bool {
		ready := meta.FindStatusCondition(mooring.Status.Conditions, isReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == mooring.Generation
	})
}

func (s *state) patch(t *testing.T, object client.Object, patch string) {
	t.Helper()
	check(t, s.Patch(t.Context(), object, mergePatch(patch)))
}

func mergePatch(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

func expectRefusal(t *testing.T, err error, reason string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) {
		t.Errorf("not refused since %s: %v", reason, err)
	}
}

// expectNoPods checks that no pods are left, and that none will come. Neighbours keep a shared control plane from settling.
func (s *state) expectNoPods(t *testing.T) {
	t.Helper()
	if s.settle == nil {
		return
	}
	s.settle(t)
	pods := &corev1.PodList{}
	check(t, s.List(t.Context(), pods, client.InNamespace(s.namespace)))
	if len(pods.Items) != 0 {
		t.Errorf("%d pods", len(pods.Items))
	}
}
