// Command operator runs a part of cert-manager as its published library has it: the controller, the webhook or the cainjector.
//
// cert-manager publishes its commands in modules of their own, which the module proxy does not carry. What they do beside what is
// here is the parsing of flags, leader election and metrics.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	"github.com/cert-manager/cert-manager/internal/webhook"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

// workers is how many objects a controller reconciles at once, the default of cert-manager's controller.
const workers = 5

// controller-runtime has flags of its own in the common set.
var (
	flags      = flag.NewFlagSet("operator", flag.ExitOnError)
	kubeconfig = flags.String("kubeconfig", "", "the path of a kubeconfig")
	namespace  = flags.String("namespace", "cert-manager", "the namespace of the installation")
	name       = flags.String("webhook-name", "cert-manager-webhook", "the name of the webhook's Service")
	port       = flags.Int("secure-port", 0, "the port of the webhook")
)

func main() {
	flags.Usage = func() { fmt.Fprintln(os.Stderr, "usage: operator [FLAGS] controller|webhook|cainjector") }
	// The set ends the process on an error.
	_ = flags.Parse(os.Args[1:])
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parts := map[string]func(context.Context) error{
		"controller": runController, "webhook": runWebhook, "cainjector": runCAInjector,
	}
	run := parts[flags.Arg(0)]
	if run == nil {
		flags.Usage()
		os.Exit(2)
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runController(ctx context.Context) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         *kubeconfig,
		KubernetesAPIQPS:   100,
		KubernetesAPIBurst: 200,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: *namespace},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, construct := range controller.Known() {
		control, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		group.Go(func() error { return control.Run(workers, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	return group.Wait()
}

func runWebhook(ctx context.Context) error {
	configuration, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	configuration.KubeConfig = *kubeconfig
	configuration.SecurePort = int32(*port)
	configuration.HealthzPort = 0
	configuration.MetricsListenAddress = "0"
	service := *name + "." + *namespace
	configuration.TLSConfig.Dynamic = shared.DynamicServingConfig{
		SecretNamespace: *namespace,
		SecretName:      *name + "-ca",
		DNSNames:        []string{*name, service, service + ".svc"},
		LeafDuration:    configuration.TLSConfig.Dynamic.LeafDuration,
	}
	server, err := webhook.NewCertManagerWebhookServer(klog.Background(), *configuration)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func runCAInjector(ctx context.Context) error {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, certmanagerv1.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(types); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	// Its field manager is named after its user agent.
	config = util.RestConfigWithUserAgent(config, "cainjector")
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: types, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}
