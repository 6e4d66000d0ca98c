"""deploy/k8s renders, fits the Kubernetes schemas, and its parts name each other right. Skips without kubectl or
kubernetes-validate (tests/requirements.txt)."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import kubernetes_validate
    import yaml
except ImportError:
    kubernetes_validate = None

from shapes import misfit

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy", "k8s")
VERSIONS = ("1.27", "1.30", "1.33")
OVERLAYS = ("base", "gpu", "tls")
KINDS = sorted(["Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget",
                "PodDisruptionBudget", "PodMonitor", "Service", "Service", "StatefulSet"])
# No schema of the Prometheus operator can be had offline: these are the fields that we use.
RELABELING = {"sourceLabels": [str], "targetLabel": str, "replacement": str}
POD_MONITOR = {"selector": {"matchLabels": {"app.kubernetes.io/name": str}},
               "podMetricsEndpoints": [{"port": str, "path": str, "interval": str, "relabelings": [RELABELING]}]}
SKIP = 77


def render(overlay, folder):
    done = subprocess.run(["kubectl", "kustomize", os.path.join(folder, overlay)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


class Rendered:
    def __init__(self, overlay, folder=FOLDER):
        self.resources = render(overlay, folder)

    def all(self, kind):
        return [resource for resource in self.resources if resource["kind"] == kind]

    def pods(self):
        """Component -> pod template of the workload."""
        workloads = self.all("Deployment") + self.all("StatefulSet")
        return {w["metadata"]["labels"]["app.kubernetes.io/component"]: w["spec"]["template"] for w in workloads}

    def ports(self, component):
        container, = self.pods()[component]["spec"]["containers"]
        return {port["name"]: port["containerPort"] for port in container["ports"]}


def selects(selector, template):
    return selector.items() <= template["metadata"]["labels"].items()


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rendered = {overlay: Rendered(overlay) for overlay in OVERLAYS}

    def test_has_every_kind(self):
        for rendered in self.rendered.values():
            self.assertEqual(KINDS, sorted(resource["kind"] for resource in rendered.resources))

    def test_fits_the_schemas_and_has_no_unknown_field(self):
        for rendered in self.rendered.values():
            for resource in rendered.resources:
                if resource["kind"] == "PodMonitor":
                    self.assertIsNone(misfit(resource["spec"], POD_MONITOR, "spec"))
                    continue
                for version in VERSIONS:
                    kubernetes_validate.validate(resource, version, strict=True)

    def test_a_wrong_field_is_found(self):
        deployment, = self.rendered["base"].all("Deployment")
        broken = {**deployment, "spec": {**deployment["spec"], "replica": 1}}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, VERSIONS[0], strict=True)
        self.assertIn("podMetricsEndpoints", misfit({"selector": {}}, POD_MONITOR))

    def test_services_and_budgets_select_their_pods(self):
        for rendered in self.rendered.values():
            pods = rendered.pods()
            for service in rendered.all("Service"):
                component = service["spec"]["selector"]["app.kubernetes.io/component"]
                self.assertTrue(selects(service["spec"]["selector"], pods[component]))
                for port in service["spec"]["ports"]:
                    self.assertIn(port["targetPort"], rendered.ports(component))
            for budget in rendered.all("PodDisruptionBudget"):
                labels = budget["spec"]["selector"]["matchLabels"]
                self.assertTrue(selects(labels, pods[labels["app.kubernetes.io/component"]]))
            monitor, = rendered.all("PodMonitor")
            for component, pod in pods.items():
                self.assertTrue(selects(monitor["spec"]["selector"]["matchLabels"], pod))
                self.assertIn(monitor["spec"]["podMetricsEndpoints"][0]["port"], rendered.ports(component))

    def test_router_workers_and_autoscaler_name_each_other(self):
        for rendered in self.rendered.values():
            worker, = rendered.all("StatefulSet")
            headless, = [s for s in rendered.all("Service") if s["spec"].get("clusterIP") == "None"]
            self.assertEqual(headless["metadata"]["name"], worker["spec"]["serviceName"])
            grpc = headless["spec"]["ports"][0]["port"]
            router, = rendered.pods()["router"]["spec"]["containers"]
            self.assertIn(f"--worker=dns:{headless['metadata']['name']}:{grpc}", router["args"])
            self.assertEqual(grpc, rendered.ports("worker")["grpc"])
            scaler, = rendered.all("HorizontalPodAutoscaler")
            self.assertEqual((worker["kind"], worker["metadata"]["name"]),
                             (scaler["spec"]["scaleTargetRef"]["kind"], scaler["spec"]["scaleTargetRef"]["name"]))

    def test_pods_have_probes_and_no_rights(self):
        for rendered in self.rendered.values():
            for pod in rendered.pods().values():
                self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
                self.assertFalse(pod["spec"]["automountServiceAccountToken"])
                for container in pod["spec"]["containers"]:
                    self.assertLessEqual({"startupProbe", "readinessProbe", "livenessProbe"}, container.keys())
                    self.assertEqual({"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                      "capabilities": {"drop": ["ALL"]}}, container["securityContext"])

    def test_with_tls_both_sides_have_the_files_and_probes_too(self):
        for component, pod in self.rendered["tls"].pods().items():
            container, = pod["spec"]["containers"]
            values = {variable["name"]: variable.get("value") for variable in container["env"]}
            for name, file in (("CERT", "tls.crt"), ("KEY", "tls.key"), ("CA", "ca.crt")):
                self.assertEqual(values[f"WEIGHTLESS_GRPC_TLS_{name}_FILE"], "/grpc-tls/" + file)
            self.assertIn({"name": "grpc-tls", "mountPath": "/grpc-tls", "readOnly": True}, container["volumeMounts"])
            if component == "worker":
                for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                    self.assertEqual(container[name]["exec"]["command"][:2], ["weightless", "probe"])
                    self.assertNotIn("grpc", container[name])

    def test_policies_open_exactly_the_ports_that_pods_have(self):
        for rendered in self.rendered.values():
            for policy in rendered.all("NetworkPolicy"):
                component = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
                self.assertEqual(set(rendered.ports(component).values()), opened)

    def test_a_worker_has_a_thread_for_each_cpu_it_asks_for(self):
        for rendered in self.rendered.values():
            worker, = rendered.pods()["worker"]["spec"]["containers"]
            self.assertIn({"name": "WEIGHTLESS_THREADS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
                          worker["env"])

    def test_images_can_be_named_where_the_readme_says(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(FOLDER, os.path.join(folder, "k8s"))
            for overlay in ("base", "gpu"):
                path = os.path.join(copy, overlay, "kustomization.yaml")
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text.replace("newName: weightless", "newName: registry.example/weightless"))
            rendered = Rendered("gpu", copy)
        images = {name: pod["spec"]["containers"][0]["image"] for name, pod in rendered.pods().items()}
        self.assertEqual({"router": "registry.example/weightless:cpu", "worker": "registry.example/weightless:cuda"}, images)

    def test_overlay_gives_each_worker_a_gpu(self):
        worker, = self.rendered["gpu"].pods()["worker"]["spec"]["containers"]
        self.assertEqual("1", worker["resources"]["limits"]["nvidia.com/gpu"])
        self.assertEqual("weightless:cuda", worker["image"])


if __name__ == "__main__":
    if shutil.which("kubectl") is None or kubernetes_validate is None:
        print("SKIPPED: kubectl (scripts/setup deploy) or kubernetes-validate (scripts/test-venv) is not installed")
        sys.exit(SKIP)
    unittest.main()
