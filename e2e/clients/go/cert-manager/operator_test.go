// Package certmanager runs cert-manager's controller, webhook and cainjector, built from its published module and installed with its
// own chart by the real Helm, against Coracle. Each is a local process with the token of its ServiceAccount.
package certmanager

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
	"coracle.dev/e2e/clients/go/processes"
)

const (
	module = "github.com/cert-manager/cert-manager"
	group  = "cert-manager.io"
)

// An authority that signs itself, an issuer by that authority, and a certificate of this issuer.
const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: self-signed}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority, namespace: shop}
spec:
  isCA: true
  commonName: authority
  secretName: authority
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: self-signed, kind: ClusterIssuer}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: authority, namespace: shop}
spec: {ca: {secretName: authority}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec:
  secretName: web
  dnsNames: [web.example.com]
  duration: 24h
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: authority}
`

// suite is an installation of cert-manager.
type suite struct {
	*processes.Objects
	helm       string
	kubeconfig string
	home       string
}

func (s *suite) runHelm(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.helm, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.home)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
}

func (s *suite) certificates() dynamic.ResourceInterface {
	return s.In("shop", group, "v1", "certificates")
}

func TestCertificatesAreIssuedAndEverythingIsDeletedCleanly(t *testing.T) {
	operator := processes.Build(t, "./operator")
	chart := filepath.Join(processes.ModuleDirectory(t, module), "deploy", "charts", "cert-manager")
	controlPlane := coracletest.Start(t)
	config, err := restconfig.Of(controlPlane)
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{
		Objects:    processes.NewObjects(t, config),
		helm:       processes.Build(t, "helm.sh/helm/v3/cmd/helm"),
		kubeconfig: controlPlane.KubeconfigFile,
		home:       t.TempDir(),
	}
	port := processes.FreePort(t)
	s.runHelm(t, "install", "cert-manager", chart, "--namespace=cert-manager", "--create-namespace", "--wait", "--timeout=50s",
		"--set=crds.enabled=true,crds.keep=false,startupapicheck.enabled=false",
		// The addresses of simulated pods lead nowhere; the annotation says where the webhook is.
		fmt.Sprintf(`--set-string=webhook.serviceAnnotations.coracle\.dev/service-url=https://127.0.0.1:%d`, port))
	start := func(part, account string, flags ...string) {
		kubeconfig := processes.KubeconfigOf(t, config, "cert-manager", account)
		arguments := append([]string{"-kubeconfig=" + kubeconfig}, flags...)
		processes.Start(t, part, nil, operator, append(arguments, part)...)
	}
	start("cainjector", "cert-manager-cainjector")
	start("webhook", "cert-manager-webhook", fmt.Sprintf("-secure-port=%d", port))
	start("controller", "cert-manager")
	injected(t, s.Objects)

	s.Create(t, processes.Read(t, []byte(manifests))...)
	processes.WaitForConditions(t, s.In("", group, "v1", "clusterissuers"), "self-signed", "Ready")
	processes.WaitForConditions(t, s.In("shop", group, "v1", "issuers"), "authority", "Ready")
	processes.WaitForConditions(t, s.certificates(), "authority", "Ready")
	web := processes.WaitForConditions(t, s.certificates(), "web", "Ready")
	secrets := s.In("shop", "", "v1", "secrets")
	verify(t, secrets)

	// The webhook refuses what the schema allows, and reaches the client with its own words.
	wrong := web.DeepCopy()
	wrong.SetName("wrong")
	wrong.SetResourceVersion("")
	if err := unstructured.SetNestedField(wrong.Object, "1m", "spec", "duration"); err != nil {
		t.Fatal(err)
	}
	_, err := s.certificates().Create(t.Context(), wrong, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `admission webhook "webhook.cert-manager.io" denied the request`) {
		t.Errorf("an invalid Certificate: %v", err)
	}

	// A Secret that somebody deletes is issued again.
	first, err := secrets.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	processes.Eventually(t, "the Secret is issued again", func(ctx context.Context) (bool, string) {
		again, err := secrets.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && again.GetUID() != first.GetUID(), fmt.Sprint(err)
	})
	processes.WaitForConditions(t, s.certificates(), "web", "Ready")
	verify(t, secrets)

	// With a Certificate go its requests, by garbage collection.
	if err := s.certificates().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	requests := s.In("shop", group, "v1", "certificaterequests")
	processes.Eventually(t, "its requests are gone", func(ctx context.Context) (bool, string) {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, request := range list.Items {
			if strings.HasPrefix(request.GetName(), "web-") {
				return false, request.GetName()
			}
		}
		return true, ""
	})

	// Uninstalling deletes the definitions, and so all custom resources, while the operators run.
	s.runHelm(t, "uninstall", "cert-manager", "--namespace=cert-manager", "--wait", "--timeout=50s")
	definitions := s.In("", "apiextensions.k8s.io", "v1", "customresourcedefinitions")
	processes.Eventually(t, "the definitions are gone", func(ctx context.Context) (bool, string) {
		list, err := definitions.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(err, list)
	})
	namespaces := s.In("", "", "v1", "namespaces")
	for _, name := range []string{"shop", "cert-manager"} {
		if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	processes.Eventually(t, "the namespaces are gone", func(ctx context.Context) (bool, string) {
		list, err := namespaces.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, namespace := range list.Items {
			if namespace.GetName() == "shop" || namespace.GetName() == "cert-manager" {
				return false, fmt.Sprint(namespace.Object["status"])
			}
		}
		return true, ""
	})
}

// injected waits until the cainjector has put the webhook's authority into its configurations.
func injected(t *testing.T, objects *processes.Objects) {
	t.Helper()
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		all := objects.In("", "admissionregistration.k8s.io", "v1", resource)
		processes.Eventually(t, resource+" have a CA bundle", func(ctx context.Context) (bool, string) {
			configuration, err := all.Get(ctx, "cert-manager-webhook", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
			for _, webhook := range webhooks {
				members, _ := webhook.(map[string]any)
				if bundle, _, _ := unstructured.NestedString(members, "clientConfig", "caBundle"); bundle == "" {
					return false, fmt.Sprint(webhook)
				}
			}
			return true, ""
		})
	}
}

// verify checks the certificate in the Secret against the authority beside it.
func verify(t *testing.T, secrets dynamic.ResourceInterface) {
	t.Helper()
	secret, err := secrets.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, _, _ := unstructured.NestedString(secret.Object, "data", name)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	block, _ := pem.Decode(read("tls.crt"))
	if block == nil {
		t.Fatalf("no certificate: %v", secret)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read("ca.crt"))
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: "web.example.com"}); err != nil {
		t.Error(err)
	}
}
