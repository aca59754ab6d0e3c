// Whose kinds a stack may use in a cluster: only the CustomResourceDefinitions in these modules are read, nothing is
// built. tests/infra/kubernetes/crds.py says which files.
module diphase/tests/toolchain/kubernetes/crds

go 1.26.5

require (
	github.com/aws/karpenter-provider-aws v1.13.1
	github.com/cert-manager/cert-manager v1.21.2
	github.com/kedacore/keda/v2 v2.21.0
	sigs.k8s.io/gateway-api v1.4.0
)
