// Command storage provisions `local` volumes: one folder each below --folder, on the node that the scheduler chose.
//
// The kubelet applies a Pod's fsGroup to `local` volumes and not to `hostPath` ones, so a claim behaves here as it does
// on a cluster with real storage. The requested size is recorded and not enforced.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Name is what a StorageClass gives as its provisioner.
const Name = "casemate.conformance/local"

// folders makes and removes the folders behind volumes.
type folders struct {
	root string
}

// path is the folder of a volume. A volume's name is a DNS label ("pvc-" and a UID), so it cannot lead elsewhere.
func (f folders) path(volume string) string {
	return filepath.Join(f.root, volume)
}

// Provision makes the folder and describes the volume. It is called again after a failure, and a folder that is there
// already is the one it made before.
func (f folders) Provision(_ context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, fmt.Errorf("no node was chosen: the StorageClass needs volumeBindingMode WaitForFirstConsumer")
	}
	path := f.path(o.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{
					Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName},
				}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder of a volume that Provision made, and refuses any other.
func (f folders) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	path := f.path(volume.Name)
	if volume.Spec.Local == nil || volume.Spec.Local.Path != path {
		return &controller.IgnoredError{Reason: "its folder is none of this provisioner's"}
	}
	return os.RemoveAll(path)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	root := flag.String("folder", "", "where volumes are made")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil || *root == "" {
		klog.Fatalf("--kubeconfig and --folder are needed: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := kubernetes.NewForConfigOrDie(config)
	controller.NewProvisionController(ctx, client, Name, folders{*root}, controller.LeaderElection(false)).Run(ctx)
}
