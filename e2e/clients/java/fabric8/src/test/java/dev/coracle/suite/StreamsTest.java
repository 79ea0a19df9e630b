package dev.coracle.suite;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.PodResource;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** fabric8's client: commands, logs and forwarded ports of simulated pods, with the control plane in KUBECONFIG. */
class StreamsTest {
  private static final int DEADLINE_SECONDS = 30;

  private static KubernetesClient client;

  @BeforeAll
  static void connect() {
    client = new KubernetesClientBuilder().build();
  }

  @AfterAll
  static void disconnect() {
    client.close();
  }

  /** Creates the pod web in a namespace of its own, and returns once it is ready. */
  private static PodResource runPod(Map<String, String> annotations, String... command) {
    var body = new NamespaceBuilder().withNewMetadata().withGenerateName("suite-").endMetadata().build();
    var namespace = client.namespaces().resource(body).create().getMetadata().getName();
    var named = annotations.entrySet().stream().collect(Collectors.toMap(e -> "sim.coracle.dev/" + e.getKey(), Map.Entry::getValue));
    var pod = new PodBuilder()
        .withNewMetadata().withName("web").withNamespace(namespace).withAnnotations(named).endMetadata()
        .withNewSpec()
        .withRestartPolicy(command.length == 0 ? "Always" : "Never")
        .addNewContainer().withName("web").withImage("web:1").withCommand(List.of(command)).endContainer()
        .endSpec()
        .build();
    client.resource(pod).create();
    var created = client.pods().inNamespace(namespace).withName("web");
    created.waitUntilReady(DEADLINE_SECONDS, TimeUnit.SECONDS);
    return created;
  }

  private record Executed(String stdout, String stderr, int code) {}

  private static Executed execute(PodResource pod, String stdin, String... command) throws Exception {
    var stdout = new ByteArrayOutputStream();
    var stderr = new ByteArrayOutputStream();
    var input = stdin == null ? null : new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8));
    var streams = input == null ? pod.writingOutput(stdout) : pod.readingInput(input).writingOutput(stdout);
    try (var process = streams.writingError(stderr).exec(command)) {
      var code = process.exitCode().get(DEADLINE_SECONDS, TimeUnit.SECONDS);
      return new Executed(stdout.toString(StandardCharsets.UTF_8), stderr.toString(StandardCharsets.UTF_8), code);
    }
  }

  @Test
  void aCommandAnswersAsThePodSays() throws Exception {
    var pod = runPod(Map.of("exec", """
        {"ls *": {"stdout": "bin\\netc\\n"},
         "ls /none": {"stdout": "before\\n", "stderr": "ls: no such file\\n", "exitCode": 2},
         "wc -c": {"stdout": "7\\n", "after": "500ms"}}"""));
    assertEquals(new Executed("bin\netc\n", "", 0), execute(pod, null, "ls", "/"));
    assertEquals(new Executed("before\n", "ls: no such file\n", 2), execute(pod, null, "ls", "/none"));
    assertEquals(new Executed("7\n", "", 0), execute(pod, "a line\n", "wc", "-c"));
    assertEquals(new Executed("a\n", "", 3), execute(pod, null, "sh", "-c", "echo a; sleep 1; exit 3"));
  }

  @Test
  void aCommandThatIsNotSimulatedIsNotFound() throws Exception {
    var executed = execute(runPod(Map.of()), null, "nginx", "-t");
    assertEquals(127, executed.code());
    assertTrue(executed.stderr().startsWith("exec of \"nginx -t\" is not simulated"), executed::stderr);
  }

  @Test
  void aLogIsFollowedToItsEnd() throws Exception {
    var pod = runPod(Map.of(), "sh", "-c", "echo one; sleep 1; echo two");
    try (var log = pod.watchLog()) {
      var text = CompletableFuture.supplyAsync(() -> {
        try {
          return new String(log.getOutput().readAllBytes(), StandardCharsets.UTF_8);
        } catch (java.io.IOException error) {
          throw new java.io.UncheckedIOException(error);
        }
      });
      assertEquals("one\ntwo\n", text.get(DEADLINE_SECONDS, TimeUnit.SECONDS));
    }
  }

  @Test
  void aPortLeadsToALocalServer() throws Exception {
    var site = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    site.createContext("/", exchange -> {
      var answer = exchange.getRequestURI().toString().getBytes(StandardCharsets.UTF_8);
      exchange.sendResponseHeaders(200, answer.length);
      exchange.getResponseBody().write(answer);
      exchange.close();
    });
    site.start();
    var pod = runPod(Map.of("forward", "80=127.0.0.1:" + site.getAddress().getPort()));
    try (var forward = pod.portForward(80)) {
      var http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(DEADLINE_SECONDS)).build();
      for (var path : List.of("/a", "/b?c=d")) {
        var address = URI.create("http://127.0.0.1:" + forward.getLocalPort() + path);
        var request = HttpRequest.newBuilder(address).timeout(Duration.ofSeconds(DEADLINE_SECONDS)).build();
        assertEquals(path, http.send(request, BodyHandlers.ofString()).body());
      }
      assertEquals(List.of(), List.copyOf(forward.getServerThrowables()));
    } finally {
      site.stop(0);
    }
  }

  @Test
  void muchDataArrivesBothWays() throws Exception {
    var sent = new byte[5 << 20];
    new Random(7).nextBytes(sent);
    try (var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      var pod = runPod(Map.of("forward", "7=localhost:" + listener.getLocalPort()));
      var echo = CompletableFuture.runAsync(() -> {
        try (var connection = listener.accept()) {
          connection.getInputStream().transferTo(connection.getOutputStream());
        } catch (java.io.IOException ended) {
          // The client closes first.
        }
      });
      try (var forward = pod.portForward(7);
          var connection = new Socket(InetAddress.getLoopbackAddress(), forward.getLocalPort())) {
        connection.setSoTimeout((int) TimeUnit.SECONDS.toMillis(DEADLINE_SECONDS));
        var sending = CompletableFuture.runAsync(() -> {
          try {
            connection.getOutputStream().write(sent);
          } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
          }
        });
        assertArrayEquals(sent, connection.getInputStream().readNBytes(sent.length));
        sending.get(DEADLINE_SECONDS, TimeUnit.SECONDS);
      }
      echo.get(DEADLINE_SECONDS, TimeUnit.SECONDS);
    }
  }
}
