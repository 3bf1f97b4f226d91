from mapveil.central.adaptive_grid import AdaptiveGrid as AdaptiveGrid
from mapveil.central.emd_heatmap import EmdHeatmap as EmdHeatmap
from mapveil.central.laplace_histogram import LaplaceHistogram as LaplaceHistogram
from mapveil.central.multiscale_heatmap import MultiscaleHeatmap as MultiscaleHeatmap
from mapveil.central.privtree import PrivTree as PrivTree
from mapveil.central.spatial_decomposition import SpatialDecomposition as SpatialDecomposition
from mapveil.central.thresholded_histogram import ThresholdedHistogram as ThresholdedHistogram
from mapveil.distributed.adaptive_histogram import AdaptiveHistogram as AdaptiveHistogram
from mapveil.distributed.count_min_histogram import CountMinHistogram as CountMinHistogram
from mapveil.distributed.flat_histogram import FlatHistogram as FlatHistogram
from mapveil.distributed.hierarchical_histogram import HierarchicalHistogram as HierarchicalHistogram
from mapveil.distributed.local_laplace import LocalLaplace as LocalLaplace
from mapveil.distributed.multiscale_histogram import MultiscaleHistogram as MultiscaleHistogram
from mapveil.distributed.proportion_histogram import ProportionHistogram as ProportionHistogram
from mapveil.distributed.uniform_grid import UniformGrid as UniformGrid
from mapveil.local.randomizers.disk_area import DiskArea as DiskArea
from mapveil.local.randomizers.generalized_response import (
    GeneralizedRandomizedResponse as GeneralizedRandomizedResponse,
)
from mapveil.local.randomizers.hadamard_response import HadamardResponse as HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing as HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing as LocalHashing
from mapveil.local.randomizers.planar_laplace import PlanarLaplace as PlanarLaplace
from mapveil.local.randomizers.staircase_response import StaircaseResponse as StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection as SubsetSelection
from mapveil.local.randomizers.unary_encoding import UnaryEncoding as UnaryEncoding
from mapveil.random_features.federated_kde import FederatedKde as FederatedKde
from mapveil.random_features.fourier_kde import FourierKde as FourierKde
from mapveil.random_features.private_fourier_kde import PrivateFourierKde as PrivateFourierKde
from mapveil.random_features.zero_features import ZeroFeatures as ZeroFeatures
