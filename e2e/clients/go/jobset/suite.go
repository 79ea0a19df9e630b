// Package jobset pins JobSet, whose own integration suites run on the programs in KUBEBUILDER_ASSETS, unchanged: they are packages of its
// published module. The imports are those of the suites, which go.mod and go.sum have to cover.
package jobset

import (
	_ "github.com/google/go-cmp/cmp/cmpopts"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/jobset/pkg/controllers"
	_ "sigs.k8s.io/jobset/pkg/webhooks"
	_ "sigs.k8s.io/jobset/test/util"
)
