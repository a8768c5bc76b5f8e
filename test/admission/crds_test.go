package admission_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

// An API server compiles the rules of a CustomResourceDefinition and estimates their cost when the chart is installed.
// gofmt, for one, writes two single quotes in a doc comment as a typographic one, which is no expression any more.
func TestAPIServersAcceptTheCustomResourceDefinitions(t *testing.T) {
	files, err := filepath.Glob("../../k8s/chart/weft/files/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v1 extensions.CustomResourceDefinition
			if err := yaml.UnmarshalStrict(text, &v1); err != nil {
				t.Fatal(err)
			}
			extensions.SetDefaults_CustomResourceDefinition(&v1)
			extensions.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
			var internal apiextensions.CustomResourceDefinition
			if err := extensions.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
				&v1, &internal, nil); err != nil {
				t.Fatal(err)
			}
			internal.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
				t.Error(err)
			}
		})
	}
}
