package dev.coracle.suite;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.apps.StatefulSet;
import io.fabric8.kubernetes.api.model.apps.StatefulSetBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** fabric8's client: typed objects and informers, with the control plane in KUBECONFIG. */
class Fabric8Test {
  private static final long DEADLINE_SECONDS = 30;

  private static KubernetesClient client;
  private String namespace;

  @BeforeAll
  static void connect() {
    client = new KubernetesClientBuilder().build();
  }

  @AfterAll
  static void disconnect() {
    client.close();
  }

  @BeforeEach
  void createNamespace() {
    var body = new NamespaceBuilder().withNewMetadata().withGenerateName("suite-").endMetadata().build();
    namespace = client.namespaces().resource(body).create().getMetadata().getName();
  }

  private ConfigMap configMap(String name, Map<String, String> data) {
    return new ConfigMapBuilder()
        .withNewMetadata().withNamespace(namespace).withName(name).addToLabels("suite", "fabric8").endMetadata()
        .withData(data)
        .build();
  }

  private static void until(String what, BooleanSupplier condition) throws InterruptedException {
    var deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, what);
      Thread.sleep(10);
    }
  }

  private static int codeOf(Runnable call) {
    return assertThrows(KubernetesClientException.class, call::run).getCode();
  }

  @Test
  void typedObjectsAreCreatedChangedAndDeleted() {
    var maps = client.configMaps().inNamespace(namespace);
    var created = maps.resource(configMap("settings", Map.of("colour", "blue"))).create();
    assertEquals(409, codeOf(() -> maps.resource(configMap("settings", Map.of())).create()));
    assertEquals(422, codeOf(() -> maps.resource(configMap("Not a name", Map.of())).create()));

    var edited = maps.withName("settings").edit(map -> new ConfigMapBuilder(map).addToData("size", "small").build());
    assertEquals(Map.of("colour", "blue", "size", "small"), edited.getData());
    assertNotEquals(created.getMetadata().getResourceVersion(), edited.getMetadata().getResourceVersion());
    assertEquals(409, codeOf(() -> maps.resource(created).lockResourceVersion().update()));
    var patched = maps.withName("settings").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"size\":null}}");
    assertEquals(Map.of("colour", "blue"), patched.getData());

    assertEquals(1, maps.withLabel("suite", "fabric8").list().getItems().size());
    maps.withName("settings").delete();
    assertNull(maps.withName("settings").get());
  }

  @Test
  void anApplyConflictsAndIsForced() {
    var maps = client.configMaps().inNamespace(namespace);
    var team = new PatchContext.Builder().withPatchType(PatchType.SERVER_SIDE_APPLY).withFieldManager("team").build();
    var other = new PatchContext.Builder().withPatchType(PatchType.SERVER_SIDE_APPLY).withFieldManager("other");
    maps.resource(configMap("settings", Map.of("colour", "blue"))).patch(team);
    var green = configMap("settings", Map.of("colour", "green"));
    assertEquals(409, codeOf(() -> maps.resource(green).patch(other.withForce(false).build())));
    var forced = maps.resource(green).patch(other.withForce(true).build());
    assertEquals("green", forced.getData().get("colour"));
  }

  @Test
  void anInformerSeesEachChangeAndCachesTheLast() throws InterruptedException {
    var maps = client.configMaps().inNamespace(namespace);
    maps.resource(configMap("before", Map.of("n", "0"))).create();
    List<String> events = new CopyOnWriteArrayList<>();
    var handler = new ResourceEventHandler<ConfigMap>() {
      private void record(String event, ConfigMap map) {
        events.add(event + " " + map.getMetadata().getName() + " " + map.getData().get("n"));
      }

      @Override
      public void onAdd(ConfigMap map) {
        record("add", map);
      }

      @Override
      public void onUpdate(ConfigMap old, ConfigMap map) {
        record("update", map);
      }

      @Override
      public void onDelete(ConfigMap map, boolean finalStateUnknown) {
        record("delete", map);
      }
    };
    try (SharedIndexInformer<ConfigMap> informer = maps.withLabel("suite", "fabric8").inform(handler)) {
      assertTrue(informer.hasSynced());
      maps.resource(configMap("settings", Map.of("n", "1"))).create();
      maps.withName("settings").edit(map -> new ConfigMapBuilder(map).addToData("n", "2").build());
      until("the update", () -> {
        var cached = informer.getIndexer().getByKey(namespace + "/settings");
        return cached != null && cached.getData().get("n").equals("2");
      });
      maps.withName("settings").delete();
      var want = List.of("add before 0", "add settings 1", "update settings 2", "delete settings 2");
      until("the deletion", () -> events.equals(want));
      assertEquals(1, informer.getIndexer().list().size());
    }
  }

  @Test
  void aStatefulSetIsReadyScaledAndDeleted() throws InterruptedException {
    StatefulSet set = new StatefulSetBuilder()
        .withNewMetadata().withNamespace(namespace).withName("db").endMetadata()
        .withNewSpec()
        .withReplicas(1)
        .withNewSelector().addToMatchLabels("app", "db").endSelector()
        .withNewTemplate()
        .withNewMetadata().addToLabels("app", "db").endMetadata()
        .withNewSpec().addNewContainer().withName("db").withImage("db:1").endContainer().endSpec()
        .endTemplate()
        .endSpec()
        .build();
    var sets = client.apps().statefulSets().inNamespace(namespace);
    sets.resource(set).create();
    sets.withName("db").waitUntilReady(DEADLINE_SECONDS, TimeUnit.SECONDS);
    sets.withName("db").scale(2);
    var pods = client.pods().inNamespace(namespace).withLabel("app", "db");
    pods.resources().forEach(pod -> pod.waitUntilReady(DEADLINE_SECONDS, TimeUnit.SECONDS));
    until("two pods", () -> pods.list().getItems().size() == 2);
    sets.withName("db").delete();
    until("the end of the pods", () -> pods.list().getItems().isEmpty());
  }
}
