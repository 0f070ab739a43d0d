// Package deploy has the manifests for Kubernetes and the compose file, and their tests:
// that each manifest is what it says, and, on Linux as root, a play of the manifests with
// real processes in network namespaces. A module of its own: the types of Kubernetes are
// not for users of the library.
package deploy
