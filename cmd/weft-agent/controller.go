package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/controller"
	"github.com/weftnet/weft/metrics"
)

// controllerOptions are the flags of weft-agent controller.
type controllerOptions struct {
	kubeconfig string
	namespace  string
	health     string
	endpoints  bool
	persistent bool
	policies   bool
	level      slog.Level
	untaint    bool
}

func (o *controllerOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the pod's service account")
	fs.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "weft-system"),
		"namespace of its lease and its ledger; default: environment variable POD_NAMESPACE")
	fs.StringVar(&o.health, "health-address", "127.0.0.1:9879", "address of /livez, /readyz and /metrics")
	fs.BoolVar(&o.untaint, "untaint-nodes", false,
		"remove the taint "+controller.TaintNotReady+
			" from nodes that serve pods; needs permission to watch and patch nodes")
	fs.BoolVar(&o.endpoints, "service-endpoints", false,
		"create EndpointSlices for Services with the annotation contivpp.io/endpoint-selector; needs the permissions in endpoints.yaml")
	fs.BoolVar(&o.persistent, "persistent-ips", false,
		"make the IPAMClaims of StatefulSets' pods with the option persistentIPs; needs the permissions in persistent-ips.yaml")
	fs.BoolVar(&o.policies, "report-network-policies", true,
		"write Events on NetworkPolicies that they are not enforced; disable it if the agents (kubernetes.enforcePolicies) or another component enforce them")
	fs.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

func (o *controllerOptions) validate() error {
	if o.kubeconfig != "" && !filepath.IsAbs(o.kubeconfig) {
		return usageError{fmt.Errorf("--kubeconfig %s: must be an absolute path", o.kubeconfig)}
	}
	if _, _, err := net.SplitHostPort(o.health); err != nil {
		return usageError{fmt.Errorf("--health-address %s: %w", o.health, err)}
	}
	return nil
}

func controllerCommand() *cobra.Command {
	var o controllerOptions
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Write the status of the cluster's networks and pools; runs as a Deployment, not on each node",
		Long: "controller assigns VXLAN network identifiers, writes the status of CustomNetworks and IPPools from the reports of\n" +
			"nodes, and frees the addresses of deleted nodes. With --service-endpoints it creates endpoints for Services with backends\n" +
			"on additional interfaces of pods, with --persistent-ips the IPAMClaims of StatefulSets' pods. It writes Events on\n" +
			"NetworkPolicies that they are not enforced. Of several replicas only the one with the lease is active.",
		Example: "  weft-agent controller\n  weft-agent controller --kubeconfig /etc/kubernetes/admin.conf",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: o.level}))
			return o.run(cmd.Context(), log)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func (o *controllerOptions) run(ctx context.Context, log *slog.Logger) error {
	connection, err := client.Connection(o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := client.New(connection)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this replica: %w", err)
	}
	measured := metrics.NewController(version.String(), log)
	c, err := controller.New(controller.Config{
		Observer: measured, Metrics: measured,
		Client: client, Namespace: o.namespace, Identity: host + "_" + rand.Text(),
		Untaint: o.untaint, ServiceEndpoints: o.endpoints, PersistentIPs: o.persistent, ReportPolicies: o.policies,
		Log: log,
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.health)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	log.Info("controller starting", "version", version.String(), "namespace", o.namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.ServeHealth(ctx, listener) })
	group.Go(func() error { return c.Run(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("controller stopped")
	return nil
}
