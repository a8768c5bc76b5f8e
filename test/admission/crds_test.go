package admission_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

// Kubernetes validates a definition when it is installed: its rules compile, and their costs are within the limits.
func TestDefinitionsAreAcceptedByKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../k8s/manifests/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("definitions %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var read apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &read); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&read)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&read.Spec)
		var d apiextensions.CustomResourceDefinition
		err = apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&read, &d, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range validation.ValidateCustomResourceDefinition(t.Context(), &d) {
			t.Errorf("%s: %v", filepath.Base(file), e)
		}
	}
}
